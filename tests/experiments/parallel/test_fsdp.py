"""FSDP plans compared with torchtitan's published speeds and memory of Llama 3.1 8B."""

from __future__ import annotations

import csv
import functools
from pathlib import Path

import pytest

from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload
from experiments.hardware import resolve
from experiments.parallel.interface import PlanningEstimate, model_estimate, violations
from experiments.parallel.policies.fsdp import Fsdp
from experiments.parallel.simulator import StepSimulation, evaluate, simulate
from experiments.sources import layers_of
from experiments.workloads.transformer_layers import OPERATORS

#: Technique as torchtitan names it: kernels, devices of a sequence, what is computed again.
TECHNIQUES = {
    "fsdp + selective recompute": ("eager", 1, "selective"),
    "fsdp + compile + selective recompute": ("compiled", 1, "selective"),
    "fsdp + compile + float8": ("float8", 1, "selective"),
    "fsdp + compile": ("compiled", 1, "selective"),
    "fsdp8 cp1 + compile + float8 + full recompute": ("float8", 1, "blocks"),
    "fsdp4 cp2 + compile + float8 + full recompute": ("float8", 2, "blocks"),
}


def llama(devices: int, batch: int, sequence: int, kernels: str) -> PlanningEstimate:
    row = {"nodes": devices // 8, "devices_per_node": 8, "device": "h100-96g", "rails": 8}
    cluster = resolve({"cluster": row})
    options = WorkloadOptions(batch=batch, sequence=sequence, kernels=kernels)
    model, _ = layers_of(
        Workload("zoo:llama3.1-8b", options=options), cluster.device, lambda *_: None, OPERATORS
    )
    return model_estimate(model, cluster, evaluate)


@functools.cache
def run(devices: int, local_batch: int, sequence: int, technique: str) -> StepSimulation:
    kernels, context, recompute = TECHNIQUES[technique]
    batch = devices // context * local_batch
    estimate = llama(devices, batch, sequence, kernels)
    policy = Fsdp(context=context, recompute=recompute)
    plan = policy.place(estimate.model, estimate.cluster, batch, estimate)
    assert violations(plan, estimate.model, estimate.cluster) == []
    return simulate(plan, estimate)


def test_speed_and_memory_are_torchtitans_and_in_its_order(shared_data: Path) -> None:
    """Two of the seven speeds, 5,762 and 3,890, were used to fit the device; memory was not fitted to
    anything.
    """
    published, ours = [], []
    with (shared_data / "parallel/torchtitan_h100.csv").open() as file:
        for row in csv.DictReader(file):
            devices, sequence = int(row["gpus"]), int(row["sequence_length"])
            found = run(devices, int(row["local_batch"]), sequence, row["technique"])
            published.append(float(row["tokens_per_second_per_gpu"]))
            ours.append(found.samples_per_second * sequence / devices)
            assert ours[-1] == pytest.approx(published[-1], rel=0.15)
            assert found.peak_memory / 2**30 == pytest.approx(float(row["peak_memory_gib"]), rel=0.06)

    def order(column: list[float]) -> list[int]:
        return sorted(range(len(column)), key=column.__getitem__)

    assert order(ours) == order(published)


def test_what_is_saved_is_not_computed_again() -> None:
    """Every second product and attention run once; the rest of a block twice."""
    selective, blocks = (
        run(8, 2, 8192, "fsdp + selective recompute"),
        run(8, 1, 32768, "fsdp8 cp1 + compile + float8 + full recompute"),
    )
    assert 1 < selective.hfu / selective.mfu < 1.15 < blocks.hfu / blocks.mfu < 4 / 3
    assert selective.model_flops == 3 * 16 * llama_flops()


def llama_flops() -> float:
    model = llama(8, 16, 8192, "eager").model.transformer
    assert model is not None
    return model.forward_flops
