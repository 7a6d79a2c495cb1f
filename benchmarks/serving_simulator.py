"""How fast the serving simulator is on the Azure conversation trace, and what Orca gains there at equal load.

    python -m benchmarks.serving_simulator [TRACE]

``TRACE`` defaults to the trace next to the checkout; without it as many requests are generated. The bound is
a loop that only prices as many passes as Orca makes, one by one. Policies over blocks are timed first, by the
recorded layers of a 70B model on four H100 where they are beside the checkout: requests a CPU second of the
simulation and its figures, next to the goal and to what the open simulators were measured at.
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
from experiments.core.spec import RunSpec, Workload, load_spec
from experiments.readers.base import open_file
from experiments.readers.job_profiles import open_profiles
from experiments.serving.experiment.batching import deploy
from experiments.serving.experiment.prices import price_of
from experiments.serving.interface import CostModel, ServingPolicy
from experiments.serving.interface.paged import PagedPolicy
from experiments.serving.interface.phases import InstanceShape
from experiments.serving.simulator import figures, simulate
from experiments.serving.simulator.paged import simulate_paged
from experiments.workloads.requests import RequestTrace

SERVING = Path(__file__).resolve().parents[2] / "shared/data/serving"
FOLDER = SERVING / "azure_llm_2023"
PROFILE = SERVING / "llmservingsim/v0_H100_llama31_70b_tp4"
DEFAULT = FOLDER / "AzureLLMInferenceTrace_conv.csv"
SPEC = RunSpec("serving", "orca", Workload("the trace"), "a100-80g")
RATES = (None, 2.0, 0.3)
POLICIES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("orca", {}),
    ("orca", {"max_batch": 128}),
    ("static-batching", {}),
    ("dynamic-batching", {}),
)
#: Policies over blocks; requests a CPU second that are aimed at, and two open simulators' own.
PAGED = ("vllm_v1", "vllm_paged", "sarathi_chunked")
GOAL, PEERS = 4000, (515, 454)


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


def over_blocks(trace: RequestTrace, name: str) -> str:
    """One policy's line: CPU seconds, requests a CPU second, and its figures."""
    made = registry.create("serving", name, {"max_batch": 128})
    assert isinstance(made, PagedPolicy)
    hardware = {"cluster": {"nodes": 1, "devices_per_node": 4, "device": "h100-80g-sxm"}}
    more = {"model": "llama31-70b", "extra": str(PROFILE) if PROFILE.exists() else None}
    workload = {"source": str(DEFAULT), "options": more}
    spec = load_spec(
        {"family": "serving", "policy": name, "workload": workload, "hardware": hardware, "mode": "simulated"}
    )
    timed = replace(trace, profiles=open_profiles(PROFILE) if PROFILE.exists() else None)
    on = deploy(spec, timed, 0.0)
    price, _ = price_of(timed.profiles, on.model, on.hardware, on.dtype, InstanceShape(1, 4))
    blocks = on.engine.kv_slots // made.block_size
    started = time.process_time()
    found = figures(simulate_paged(timed, made, blocks, price, on.model.context), timed)
    spent = time.process_time() - started
    rate = len(trace) / spent
    met = "met" if rate >= GOAL else "MISSED"
    peers = f"{rate / PEERS[0]:.1f} and {rate / PEERS[1]:.1f} x"
    return f"{name:20} {spent:6.2f} {rate:8.0f} {GOAL:6} {met:6} {peers:>16} {found['iterations']:9.0f}"


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    whole = open_file(path, "auto", WorkloadOptions()).reading.value if path.exists() else generated()
    own = len(whole) / float(whole.arrival[-1])
    print("policy                CPU s req/CPU s goal        of peers' 515, 454    passes", flush=True)
    for name in PAGED:
        print(over_blocks(whole, name), flush=True)
    for rate in RATES:
        trace = replace(whole, arrival=whole.arrival * (own / (rate or own)))
        print(f"\n{len(trace)} requests of {trace.name} at {rate or own:.2f}/s, llama2-7b on {SPEC.hardware}")
        print("policy                CPU s  bound    passes  p50 ms per token TTFT p50 s  req/s", flush=True)
        for name, knobs in POLICIES:
            print(row(trace, name, knobs), flush=True)


if __name__ == "__main__":
    main()
