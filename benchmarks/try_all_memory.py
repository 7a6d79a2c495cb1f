"""From the configuration of Qwen2-1.5B to every memory policy on an RTX 4090: seconds of the processor.

    python -m benchmarks.try_all_memory [--only vdnn-all,swapadvisor] [--timeout 300]

Each row is a process of its own, as the lab starts them: the reading of the file, the capture of its step,
the law of its memory at other sizes, then the policies in the order of *Try all*. Other work on the machine
counts little, though a busy core computes less in a second.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.child_seconds import Child, run_child
from webapp.runs.offers import try_all

#: Its published ``config.json``.
QWEN2 = {
    "architectures": ["Qwen2ForCausalLM"],
    "attention_dropout": 0.0,
    "hidden_act": "silu",
    "hidden_size": 1536,
    "initializer_range": 0.02,
    "intermediate_size": 8960,
    "max_position_embeddings": 131072,
    "max_window_layers": 28,
    "model_type": "qwen2",
    "num_attention_heads": 12,
    "num_hidden_layers": 28,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 131072,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
DEVICE = "rtx-4090-24g"
#: Seconds within which the first figure is to stand, and all of them, on so many quiet cores.
FIRST, ALL, CORES = 10.0, 60.0, 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="names of policies with commas")
    parser.add_argument("--timeout", type=float, default=300.0)
    arguments = parser.parse_args()
    known = [key.partition("/")[2] for key in try_all("memory", ["model"])]
    chosen = [name for name in known if name in arguments.only.split(",") or not arguments.only]
    with tempfile.TemporaryDirectory() as folder:
        report(Path(folder), chosen, arguments.timeout)


def report(folder: Path, policies: Sequence[str], timeout: float) -> None:
    """Print a row for each process, then the sums next to what they are to keep within."""
    model, step = folder / "qwen2-1.5b.json", folder / "step.npz"
    model.write_text(json.dumps(QWEN2))
    reading = row("reading", ["inspect", str(model), "--json"], folder, timeout)
    capture = row("capture", ["capture", str(model), "--json", "--out", str(step)], folder, timeout)
    law = row("law", ["capture", str(model), "--json", "--law", "--step", str(step)], folder, timeout)
    runs = [policy(name, step, folder, timeout) for name in policies]
    first, everything = reading + capture + runs[0], reading + capture + law + sum(runs)
    print(f"the first figure after {first:.1f} s, to be within {FIRST:g}")
    print(f"{everything:.1f} s in all, {everything / CORES:.1f} on {CORES} cores, to be within {ALL:g}")


def policy(name: str, step: Path, folder: Path, timeout: float) -> float:
    spec, told = folder / "spec.json", folder / "outcome.json"
    asked = {"family": "memory", "policy": name, "workload": {"source": str(step)}, "hardware": DEVICE}
    spec.write_text(json.dumps({**asked, "mode": "simulated"}))
    return row(name, ["run", str(spec), "--out", str(told)], folder, timeout)


def row(name: str, words: Sequence[str], folder: Path, timeout: float) -> float:
    """Carry out one command of the lab, print what it took and return its seconds."""
    command = [sys.executable, "-m", "experiments", *words]
    child: Child = run_child(command, timeout, {"LAB_CACHE": str(folder / "cache" / name)})
    print(f"{name:24} {child.seconds:6.2f} s  {child.ended}", flush=True)
    return child.seconds


if __name__ == "__main__":
    main()
