"""How fast the serving simulator is on the Azure conversation trace, and what Orca gains there at equal load.

    python -m benchmarks.serving_simulator [TRACE]

``TRACE`` defaults to the trace next to the checkout; without it as many requests are generated. The bound is
a loop that only prices as many passes as Orca makes, one by one.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.core import registry
from experiments.core.options import WorkloadOptions
from experiments.core.spec import RunSpec, Workload
from experiments.readers.base import open_file
from experiments.serving.experiment.batching import deploy
from experiments.serving.interface import CostModel, ServingPolicy
from experiments.serving.simulator import figures, simulate
from experiments.workloads.requests import RequestTrace

FOLDER = Path(__file__).resolve().parents[2] / "shared/data/serving/azure_llm_2023"
DEFAULT = FOLDER / "AzureLLMInferenceTrace_conv.csv"
SPEC = RunSpec("serving", "orca", Workload("the trace"), "a100-80g")
RATES = (None, 2.0, 0.3)
POLICIES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("orca", {}),
    ("orca", {"max_batch": 128}),
    ("static-batching", {}),
    ("dynamic-batching", {}),
)


def generated(requests: int = 19_366) -> RequestTrace:
    """Poisson arrivals at 5.5 a second, geometric lengths; the same requests each time."""
    rng = np.random.default_rng(0)
    arrival = np.cumsum(rng.exponential(1 / 5.5, requests))
    prompt, output = rng.geometric(1 / 1150, requests), np.minimum(rng.geometric(1 / 211, requests), 1000)
    return RequestTrace("generated", arrival - arrival[0], prompt, output, ("",) * requests)


def bare_passes(passes: int, cost: CostModel) -> float:
    """CPU seconds to price ``passes`` passes of 32 requests, one by one."""
    started = time.process_time()
    for _ in range(passes):
        cost.pass_seconds((1,) * 32, (1000,) * 32)
    return time.process_time() - started


def row(trace: RequestTrace, name: str, knobs: dict[str, Any]) -> str:
    """One policy's line: CPU seconds, the bound, and its figures."""
    policy = registry.create("serving", name, knobs)
    assert isinstance(policy, ServingPolicy)
    engine = deploy(SPEC, trace, policy.split_cost).engine
    started = time.process_time()
    found = figures(simulate(trace, engine, policy), trace)
    spent = time.process_time() - started
    bound = bare_passes(int(found["iterations"]), engine.cost)
    label = name + "".join(f" {key}={value}" for key, value in knobs.items())
    latency, first = found["normalized_latency_p50"] * 1e3, found["ttft_p50"]
    return (
        f"{label:20} {spent:6.2f} {bound:6.2f} {found['iterations']:9.0f} {latency:16.1f} {first:10.2f}"
        f" {found['throughput']:8.2f}"
    )


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    whole = open_file(path, "auto", WorkloadOptions()).reading.value if path.exists() else generated()
    own = len(whole) / float(whole.arrival[-1])
    for rate in RATES:
        trace = replace(whole, arrival=whole.arrival * (own / (rate or own)))
        print(f"\n{len(trace)} requests of {trace.name} at {rate or own:.2f}/s, llama2-7b on {SPEC.hardware}")
        print("policy                CPU s  bound    passes  p50 ms per token TTFT p50 s  req/s", flush=True)
        for name, knobs in POLICIES:
            print(row(trace, name, knobs), flush=True)


if __name__ == "__main__":
    main()
