"""How many requests a CPU second simulates over KV blocks: whole commands, start-up and reading included.

python -m benchmarks.paged_serving [DATA]

``DATA`` defaults to the folder of data next to the checkout. The Azure conversation trace over four H100:
Llama-2-70B priced by the sheet, Llama-3.1-70B by its layer profile; and a recorded run of vLLM priced by its
own. Two open simulators need the CPU second for 515 and 454 requests of the conversation trace (measured
apart from this command)."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[2] / "shared/data"
GOAL = 4000
FOUR = {"cluster": {"nodes": 1, "devices_per_node": 4, "device": "h100-80g"}}
POLICIES = ("orca", "vllm_v1", "vllm_paged", "sarathi_chunked")


def conversation(data: Path, policy: str) -> dict[str, Any]:
    trace = data / "serving/azure_llm_2023/AzureLLMInferenceTrace_conv.csv"
    workload = {"source": str(trace), "options": {"model": "llama2-70b"}}
    return {"policy": policy, "knobs": {"max_batch": 128}, "workload": workload, "hardware": FOUR}


def conversation_by_profile(data: Path, policy: str) -> dict[str, Any]:
    folder = data / "serving/llmservingsim/v0_H100_llama31_70b_tp4"
    spec = conversation(data, policy)
    options = {"model": "llama31-70b", "extra": str(folder)}
    return {**spec, "workload": {**spec["workload"], "options": options}}


def recorded(data: Path) -> dict[str, Any]:
    folder = data / "serving/llmservingsim"
    profile = folder / "perf/RTX4090/meta-llama/Llama-3.1-8B/tp1"
    source = folder / "replay/rtx4090_llama31_8b_measured.jsonl"
    workload = {"source": str(source), "options": {"model": "llama31-8b", "extra": str(profile)}}
    return {"policy": "vllm_v1", "knobs": {"blocks": 2588}, "workload": workload, "hardware": "rtx-4090-24g"}


def main() -> int:
    data = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA
    if not data.is_dir():
        print(f"no folder {data}: name the one with the traces", file=sys.stderr)
        return 2
    print(f"{'what':40} {'requests':>8} {'steps':>8} {'CPU s':>6} {'requests/CPU s':>14}")
    for policy in POLICIES:
        print_row(f"conversation, {policy}", conversation(data, policy))
    for policy in POLICIES:
        print_row(f"conversation by profile, {policy}", conversation_by_profile(data, policy))
    print_row("recorded run, vllm_v1", recorded(data))
    print(f"goal: {GOAL} requests a CPU second; open simulators 515 and 454")
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"peak memory of any of them: {most:.0f} MiB")
    return 0


def print_row(label: str, spec: dict[str, Any]) -> None:
    whole = {"family": "serving", "mode": "simulated", "seed": 0, **spec}
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "spec.json", Path(folder) / "outcome.json"
        file.write_text(json.dumps(whole))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "experiments", "run", str(file), "--progress", "none"]
        subprocess.run([*command, "--out", str(out)], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = {name: row["value"] for name, row in json.loads(out.read_text())["metrics"].items()}
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    count, steps = found["requests"], found["iterations"]
    print(f"{label:40} {count:8.0f} {steps:8.0f} {spent:6.2f} {count / spent:14.0f}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
