"""Megatron plans of the 175B GPT on 4,096 A100s evaluated in a second, next to Calculon's analytic model on
the same plans.

The search looks at tensor x pipeline x data parallelism x chunks x micro-batch x recomputation x ZeRO x
sequence parallelism. ``--peer`` names a checkout of calculon-ai/calculon (and, after a colon, other folders
of Python packages that it needs): its ``compile`` and ``run`` are timed on plans that our search evaluated,
in the same process. Below 10,000 plans a second the benchmark ends with exit code 1.

    python benchmarks/parallel_search.py [--peer CALCULON[:PACKAGES]] [--plans 200]
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload
from experiments.hardware import resolve
from experiments.parallel.interface import PlanningEstimate, model_estimate
from experiments.parallel.planning.degrees.search import CHOSEN, SLOWER, DegreeSearchResult, search
from experiments.parallel.planning.transformers.plan import Degrees
from experiments.parallel.simulator import evaluate
from experiments.sources import layers_of
from experiments.workloads.transformer_layers import OPERATORS

DEVICES, BATCH, WANTED = 4096, 4096, 10_000
RECOMPUTE = {"none": "none", "selective": "attn_only", "blocks": "full"}


def asked() -> PlanningEstimate:
    cluster = resolve(
        {"cluster": {"nodes": DEVICES // 8, "devices_per_node": 8, "device": "a100-80g", "rails": 8}}
    )
    workload = Workload("zoo:megatron-175b", options=WorkloadOptions(batch=BATCH))
    model, _ = layers_of(workload, cluster.device, lambda *_: None, OPERATORS)
    return model_estimate(model, cluster, evaluate)


def execution(layout: Degrees) -> dict[str, Any]:
    """The plan in Calculon's words."""
    replicas = layout.replicas(DEVICES)
    scattered = (
        layout.sequence and layout.recompute != "blocks"
    )  # it knows no sequence parallelism besides "full"
    return {
        "num_procs": DEVICES,
        "tensor_par": layout.tensor,
        "pipeline_par": layout.pipeline,
        "data_par": replicas,
        "tensor_par_net": 0,
        "pipeline_par_net": 1,
        "data_par_net": 1,
        "batch_size": BATCH,
        "microbatch_size": layout.micro_batch,
        "datatype": "float16",
        "fused_activation": False,
        "attention_type": "multihead",
        "activation_recompute": RECOMPUTE[layout.recompute],
        "pipeline_interleaving": layout.interleaved,
        "optimizer_sharding": layout.zero > 0 and replicas > 1,
        "tensor_par_comm_type": "rs_ag" if scattered else "ar",
        "tensor_par_overlap": "none",
        "seq_par_ag_redo": scattered,
        "data_par_overlap": False,
        "weight_offload": False,
        "activations_offload": False,
        "optimizer_offload": False,
        "training": True,
    }


def peer_rate(folders: str, layouts: list[Degrees]) -> tuple[float, int]:
    """Plans a second, and how many of them the peer could evaluate (the others do not fit its device)."""
    sys.path[:0] = folders.split(":")
    calculon = importlib.import_module("calculon")
    llm = importlib.import_module("calculon.llm")
    root = Path(folders.split(":")[0])
    read = calculon.io.read_json_file
    sizes = llm.Llm.Application(read(str(root / "models/gpt3-175B.json")))
    system = calculon.System(read(str(root / "systems/a100_80g.json")))
    logger, done = logging.getLogger("peer"), 0
    start = time.perf_counter()
    for layout in layouts:
        model = llm.Llm(sizes, logger)
        try:
            model.compile(system, llm.Llm.Execution.from_json(execution(layout)))
            model.run(system)
            done += 1
        except llm.Llm.Error:
            continue
    return len(layouts) / (time.perf_counter() - start), done


def sample(found: DegreeSearchResult, count: int) -> list[Degrees]:
    """Plans that were evaluated, evenly spread, of the kinds that the peer knows (no ZeRO 2 or 3)."""
    places = np.flatnonzero(np.isin(found.reason, (CHOSEN, SLOWER)) & (found.plans.zero < 2))
    chosen = places[np.linspace(0, len(places) - 1, min(count, len(places))).astype(int)]
    return [found.plans.layout(int(index)) for index in chosen]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", help="checkout of calculon-ai/calculon[:folder of packages]")
    parser.add_argument("--plans", type=int, default=200, help="plans that the peer is timed on")
    chosen = parser.parse_args()
    estimate = asked()
    start = time.perf_counter()
    found = search(estimate, BATCH)
    rate = found.evaluated / (time.perf_counter() - start)
    print(f"{'175B on 4,096 A100':<22} {'plans':>8} {'evaluated':>10} {'plans/s':>9}")
    print(f"{'this search':<22} {len(found.plans):>8} {found.evaluated:>10} {rate:>9.0f}")
    if chosen.peer:
        layouts = sample(found, chosen.plans)
        theirs, done = peer_rate(chosen.peer, layouts)
        print(f"{'calculon':<22} {len(layouts):>8} {done:>10} {theirs:>9.0f}")
        print(f"{rate / theirs:.0f} times as many plans a second")
    print(f"best: {found.best}")
    print(
        f"{found.step_time:.3f} s a step, at least {found.bound:.3f} s; {found.peak_memory / 2**30:.1f} GiB"
    )
    for reason, count in found.rejections().items():
        print(f"  {count:>6} {reason}")
    return 0 if rate >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
