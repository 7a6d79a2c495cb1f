"""What is read of a source that changes while a process lives."""

from __future__ import annotations

from pathlib import Path

from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload
from experiments.readers.job_profiles.layer_times import HEADS, LAYERS
from experiments.sources import load


def test_a_file_that_was_rewritten_is_read_again(tmp_path: Path) -> None:
    """The second version has as many bytes as the first."""
    file = tmp_path / "requests.csv"
    workload = Workload(str(file))
    file.write_text("arrival,prompt,output\n0,10,4\n")
    first = load(workload)
    assert load(workload) is first
    file.write_text("arrival,prompt,output\n0,20,4\n")
    second = load(workload)
    assert (first.value.prompt.tolist(), second.value.prompt.tolist()) == ([10], [20])
    assert first.sha256 != second.sha256


def test_a_side_folder_that_was_rewritten_is_read_again(tmp_path: Path) -> None:
    """A layer profile is a folder, which itself does not change with what is in its files."""
    file, folder = tmp_path / "requests.csv", tmp_path / "profile"
    file.write_text("arrival,prompt,output\n0,10,4\n")
    folder.mkdir()
    for name, column, layers in (("dense", "tokens", LAYERS), ("per_sequence", "sequences", HEADS)):
        rows = [f"{layer},{count},5" for layer in layers for count in (1, 64)]
        (folder / f"{name}.csv").write_text("\n".join([f"layer,{column},time_us", *rows]))
    attention = folder / "attention.csv"
    header = "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n"
    attention.write_text(header + "0,0,1,16,7\n16,0,0,0,9\n")
    workload = Workload(str(file), options=WorkloadOptions(extra=str(folder)))
    first = load(workload).value.profiles
    attention.write_text(header + "0,0,1,16,8\n16,0,0,0,9\n")
    second = load(workload).value.profiles
    assert first.attention != second.attention
