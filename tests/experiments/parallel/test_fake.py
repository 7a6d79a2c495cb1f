"""Bytes by collective of plans for many ranks: the runners under torch's fake process group against the
simulator.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.__main__ import main
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload
from experiments.hardware import resolve
from experiments.parallel.interface import LivePolicy
from experiments.parallel.policies.chimera import Chimera
from experiments.parallel.policies.data_parallel import DataParallel
from experiments.parallel.policies.fsdp import Fsdp
from experiments.parallel.policies.interleaved import Interleaved
from experiments.parallel.policies.megatron import Megatron
from experiments.parallel.policies.one_f_one_b import OneForwardOneBackward
from experiments.parallel.policies.zero import Zero
from experiments.parallel.simulator import simulate
from experiments.sources import layers_of
from experiments.workloads.transformer_layers import OPERATORS
from tests.experiments.parallel.builders import cluster, estimate
from tests.experiments.parallel.tensor_plans import in_tensor_groups

#: torch 2.13 renames the flat collectives; 2.11 has the old names alone.
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")]

PIPELINE = OneForwardOneBackward(stages=2, micro_batches=2)


def both(
    policy: LivePolicy,
    workers: int,
    devices: int = 1,
    sequence: bool = False,
    zero: int | None = None,
    *,
    model: str = "gpt2-tiny",
    tokens: int = 16,
    batch: int = 8,
    ranks: tuple[int, ...] = (0, -1),
) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
    """What the simulator says and what the runner hands over, for some of the ranks."""
    from experiments.parallel.live.fake import handed_over_bytes
    from experiments.parallel.live.job import Job

    options = WorkloadOptions(batch=8, sequence=tokens, optimizer="adamw")
    graph, loaded = layers_of(Workload(f"zoo:{model}", options=options), resolve("cpu-generic").device)
    hardware = cluster(workers, devices)
    plan = policy.place(graph, cluster(1, workers), batch, estimate(graph, cluster(1, workers)))
    plan = in_tensor_groups(plan, graph, devices, sequence) if devices > 1 else plan
    plan = plan if zero is None else replace(plan, zero=zero)
    found = simulate(plan, estimate(graph, hardware)).communication_by_kind
    source = replace(loaded.value, options=replace(options, batch=batch))
    job = Job(plan, graph.layer, source, 0, Path())
    simulated = [{kind: round(size) for kind, size in found[plan.devices[rank]].items()} for rank in ranks]
    return simulated, [handed_over_bytes(job, rank % job.ranks) for rank in ranks]


CASES: dict[str, tuple[Any, ...]] = {
    "data 4": (DataParallel(micro_batches=2), 4),
    "zero 1": (Zero(stage=1, micro_batches=2), 4),
    "zero 2": (Zero(stage=2, micro_batches=2), 4),
    "zero 3": (Zero(stage=3, micro_batches=2), 4),
    "pipeline 2 x data 2, zero 1": (PIPELINE, 4, 1, False, 1),
    "interleaved": (Interleaved(stages=2, micro_batches=4), 2),
    "chimera": (Chimera(micro_batches=4), 2),
    "tensor 2 x pipeline 2": (PIPELINE, 2, 2),
    "tensor 2 x pipeline 2, sequence": (PIPELINE, 2, 2, True),
    "tensor 2 x data 2, sequence, zero 1": (DataParallel(micro_batches=2), 2, 2, True, 1),
}


TRANSFORMERS: dict[str, tuple[LivePolicy, int]] = {
    "tensor 2 x pipeline 2 x data 2": (Megatron(tensor=2, pipeline=2, micro_batch=1), 8),
    "tensor 2 x data 2, zero 1, blocks computed again": (
        Megatron(tensor=2, pipeline=1, micro_batch=2, zero=1, recompute="blocks"),
        4,
    ),
    "pipeline 2 x data 2, all computed again": (
        Megatron(tensor=1, pipeline=2, micro_batch=2, recompute="full"),
        4,
    ),
    "fsdp, blocks computed again": (Fsdp(micro_batches=2, recompute="blocks"), 4),
}


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_plans_over_operators_hand_over_what_the_simulator_says(name: str) -> None:
    """Vocabulary-parallel embedding and loss, and what is computed again with its collectives, among it."""
    from experiments.parallel.live.fake import plan_handed_over_bytes

    policy, devices = TRANSFORMERS[name]
    options, hardware = WorkloadOptions(batch=8, sequence=16, optimizer="adamw"), cluster(1, devices)
    rows, loaded = layers_of(
        Workload("zoo:gpt2-tiny", options=options), hardware.device, granularity=OPERATORS
    )
    asked = estimate(rows, hardware)
    plan = policy.place(rows, hardware, 8, asked)
    found = simulate(plan, asked).communication_by_kind
    for rank in (0, devices - 1):
        simulated = {kind: round(size) for kind, size in found[plan.devices[rank]].items()}
        assert plan_handed_over_bytes(plan, rows, loaded.value, 0, rank) == simulated


@pytest.mark.parametrize("name", CASES)
def test_bytes_by_collective_are_the_simulators(name: str) -> None:
    simulated, counted = both(*CASES[name])
    assert counted == simulated
    assert all(sum(kinds.values()) > 0 for kinds in counted)


def test_four_thousand_and_ninety_six_ranks() -> None:
    """GPT-2 over 4 tensor, 8 pipeline and 128 data-parallel ranks: one of the first, a middle and the last
    stage.
    """
    policy = OneForwardOneBackward(stages=8, micro_batches=8)
    simulated, counted = both(
        policy, 1024, 4, True, model="gpt2", tokens=64, batch=1024, ranks=(0, 1801, 4095)
    )
    assert counted == simulated
    assert "send" in counted[1] and "reduce_scatter" in counted[1] and "all_reduce" in counted[1]


def test_zero_three_on_ninety_six_ranks_is_padded_to_whole_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """FSDP2 gives each rank whole rows: a norm's 64 values become 96, the table's 256 rows become 288."""
    row = {
        "family": "parallel",
        "policy": "zero",
        "knobs": {"stage": 3},
        "workload": {"source": "zoo:gpt2-tiny", "options": {"batch": 96, "sequence": 16}},
        "hardware": {"cluster": {"nodes": 12, "devices_per_node": 8, "device": "a100-80g"}},
    }
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(row))
    assert main(["communication", str(spec), "--ranks", "0", "95", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    for one in found:
        assert one["agrees"] and one["counted"]["all_gather"] == 2 * one["counted"]["reduce_scatter"]
        assert 0.05 < one["padding"]["all_gather"] / one["simulated"]["all_gather"] < 1.0


def test_the_command_line_compares_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two pipelines of two devices; the first holds the embedding, the last its tied copy."""
    row = {
        "family": "parallel",
        "policy": "interleaved",
        "knobs": {"stages": 2, "micro_batches": 2},
        "workload": {"source": "zoo:gpt2-tiny", "options": {"batch": 8, "sequence": 16}},
        "hardware": {"cluster": {"nodes": 1, "devices_per_node": 4, "device": "a100-80g"}},
    }
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(row))
    assert main(["communication", str(spec), "--ranks", "0", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["rank"], one["agrees"]) for one in found] == [(0, True), (3, True)]
    assert (
        found[0]["counted"]["send"] == 3 * 2 * 2 * 16 * 64 * 4
    )  # F twice out, B once; two micro-batches of two
