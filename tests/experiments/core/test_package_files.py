"""Files of the package are found from any folder, and nothing else is found by such a name."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.package_files import FOLDER, is_package_file, package_files, path_of
from experiments.core.spec import Workload
from experiments.sources import load


def test_a_name_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loaded = load(Workload("package:forty-jobs.csv"))
    assert len(loaded.value.submit) == 40
    assert path_of("package:forty-jobs.csv") == FOLDER / "forty-jobs.csv"


def test_a_side_file_is_named_the_same_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = WorkloadOptions(extra="package:roller-times-v100.txt")
    loaded = load(Workload("package:roller-operators.txt", options=options))
    assert set(loaded.value.recorded) == {"TF", "TVM", "Ansor", "Roller-Top1", "Roller-Top10"}
    assert loaded.assumed == ("times in roller-times-v100.txt are milliseconds of a kernel",)


@pytest.mark.parametrize("name", ["none.txt", "", "../memory.toml", "/etc/passwd", "g10/../forty-jobs.csv"])
def test_only_what_the_package_brings_has_such_a_name(name: str) -> None:
    assert not is_package_file(f"package:{name}")
    with pytest.raises(BadInput, match=r"the package brings no such file.*package:forty-jobs\.csv"):
        path_of(f"package:{name}")


def test_a_path_stays_what_it_is() -> None:
    assert path_of("traces/x.txt") == Path("traces/x.txt")
    assert not is_package_file("forty-jobs.csv")


def test_licenses_are_no_workloads() -> None:
    assert not [name for name in package_files() if "LICENSE" in name or "README" in name]
    assert len(package_files()) >= 13
