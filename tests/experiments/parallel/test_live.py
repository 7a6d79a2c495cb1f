"""Plans carried out by torch in two and four processes over gloo: gradients and weights of one process, and
no process left behind.
"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.core.errors import BadInput, LabError
from experiments.core.forked import server_of
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload, load_spec
from experiments.hardware import resolve
from experiments.parallel.interface import LivePolicy, ParallelPlan
from experiments.parallel.policies.chimera import Chimera
from experiments.parallel.policies.data_parallel import DataParallel
from experiments.parallel.policies.fsdp import Fsdp
from experiments.parallel.policies.gpipe import GPipe
from experiments.parallel.policies.interleaved import Interleaved
from experiments.parallel.policies.megatron import Megatron
from experiments.parallel.policies.one_f_one_b import OneForwardOneBackward
from experiments.parallel.policies.zero import Zero
from experiments.parallel.policies.zero_bubble import ZeroBubble
from experiments.run import run
from experiments.sources import layers_of
from experiments.workloads.layers import LayerGraph
from experiments.workloads.model import ModelSource
from experiments.workloads.transformer_layers import CAPTURED, OPERATORS
from tests.experiments.parallel.builders import chain, cluster, estimate
from tests.experiments.parallel.ranks import carry_out
from tests.experiments.parallel.tensor_plans import in_tensor_groups

pytestmark = pytest.mark.torch

OPTIONS = WorkloadOptions(batch=8, sequence=16, optimizer="momentum")
PLANS: dict[str, LivePolicy] = {
    "data parallel": DataParallel(micro_batches=2),
    "zero 1": Zero(stage=1, micro_batches=2),
    "zero 2": Zero(stage=2),
    "zero 3": Zero(stage=3, micro_batches=2),
    "zero 3, layers computed again": Zero(stage=3, micro_batches=2, recompute=True, regather=False),
    "gpipe": GPipe(micro_batches=4),
    "gpipe, computed again": GPipe(micro_batches=4, recompute=True),
    "1f1b": OneForwardOneBackward(micro_batches=4),
    "interleaved": Interleaved(micro_batches=4),
    "chimera": Chimera(micro_batches=4),
    "zb-h1": ZeroBubble(micro_batches=4),
    "interleaved-zb": ZeroBubble(variant="interleaved", micro_batches=4),
    "zb-v": ZeroBubble(variant="v", micro_batches=4),
}
PIPELINE = OneForwardOneBackward(stages=2, micro_batches=2)
#: Plans over operators, of four ranks.
TRANSFORMERS: dict[str, LivePolicy] = {
    "megatron: tensor 2 x pipeline 2, blocks computed again": Megatron(
        tensor=2, pipeline=2, micro_batch=4, recompute="blocks"
    ),
    "megatron: tensor 2 x data 2, zero 3": Megatron(tensor=2, pipeline=1, micro_batch=4, zero=3),
    "megatron: pipeline 2 x data 2, zero 1, all computed again": Megatron(
        tensor=1, pipeline=2, micro_batch=2, zero=1, recompute="full"
    ),
    "fsdp, blocks computed again": Fsdp(micro_batches=2, recompute="blocks"),
}
#: A policy, the workers it plans for, the devices of a worker, sequences cut or not, ZeRO: four ranks each.
COMPOSED: dict[str, tuple[LivePolicy, int, int, bool, int]] = {
    "tensor 4": (DataParallel(micro_batches=2), 1, 4, False, 0),
    "tensor 2 x data 2, sequence, zero 1": (DataParallel(micro_batches=2), 2, 2, True, 1),
    "tensor 2 x pipeline 2": (PIPELINE, 2, 2, False, 0),
    "tensor 2 x pipeline 2, sequence": (PIPELINE, 2, 2, True, 0),
    "pipeline 2 x data 2, zero 1": (PIPELINE, 4, 1, False, 1),
}


def _jobs(
    folder: Path, plans: dict[str, tuple[ParallelPlan, tuple[str, ...]]], source: ModelSource
) -> dict[str, Any]:
    """Every plan on a small GPT whose embedding is tied to its head, carried out by the same processes."""
    from experiments.parallel.live.job import Job

    made = {}
    for name, (plan, layers) in plans.items():
        made[name] = Job(plan, layers, source, 0, folder / name.replace(" ", "-"))
        made[name].folder.mkdir()
        made[name].save()
    carry_out("tests.experiments.parallel.all_plans", folder, len(plan.devices))
    return made


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Two ranks, float32."""
    model, source = _gpt(OPTIONS)
    hardware = cluster(1, 2)
    asked = estimate(model, hardware)
    plans = {name: (policy.place(model, hardware, 8, asked), model.layer) for name, policy in PLANS.items()}
    return _jobs(tmp_path_factory.mktemp("two"), plans, source)


@pytest.fixture(scope="module")
def composed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Four ranks, float64: Adam turns a rounding error of a gradient that should be zero into a
    whole update.
    """
    options = WorkloadOptions(batch=8, sequence=16, optimizer="adamw", dtype="float64")
    model, source = _gpt(options)
    plans = {}
    for name, (policy, workers, ranks, sequence, zero) in COMPOSED.items():
        hardware = cluster(1, workers)
        plan = policy.place(model, hardware, 8, estimate(model, hardware, "float64"))
        plan = in_tensor_groups(plan, model, ranks, sequence) if ranks > 1 else plan
        plans[name] = replace(plan, zero=zero)
    placed = {name: (plan, model.layer) for name, plan in plans.items()}
    rows, _ = _gpt(options, OPERATORS)
    for name, transformer in TRANSFORMERS.items():
        plan = transformer.place(rows, cluster(1, 4), 8, estimate(rows, cluster(1, 4), "float64"))
        placed[name] = plan, rows.layer
    return _jobs(tmp_path_factory.mktemp("four"), placed, source)


def _gpt(options: WorkloadOptions, layers: str = CAPTURED) -> tuple[LayerGraph, ModelSource]:
    device = resolve("cpu-generic").device
    model, loaded = layers_of(Workload("zoo:gpt2-tiny", options=options), device, granularity=layers)
    return model, loaded.value


@pytest.mark.parametrize("name", PLANS)
def test_gradients_and_weights_are_those_of_one_process(jobs: dict[str, Any], name: str) -> None:
    from experiments.parallel.live import difference, single_process

    reference = single_process(jobs[name], steps=2)
    assert difference(jobs[name], "gradients", reference.gradients) <= 1e-6
    assert difference(jobs[name], "weights", reference.weights) <= 1e-6


@pytest.mark.parametrize("name", [*COMPOSED, *TRANSFORMERS])
def test_cut_layers_in_replicas_and_pipelines_too(composed: dict[str, Any], name: str) -> None:
    from experiments.parallel.live import difference, single_process

    reference = single_process(composed[name], steps=2)
    assert difference(composed[name], "gradients", reference.gradients) <= 1e-13
    assert difference(composed[name], "weights", reference.weights) <= 1e-9


def test_a_pipeline_rank_holds_its_own_stage_and_both_hold_the_tied_embedding(jobs: dict[str, Any]) -> None:
    first, last = (set(jobs["1f1b"].tensors("gradients", rank)) for rank in range(2))
    assert first & last == {"body.tokens.weight"}
    assert "body.blocks.0.qkv.weight" not in last


def test_a_gradient_that_nobody_computed_is_an_error(jobs: dict[str, Any]) -> None:
    from experiments.parallel.live import difference, single_process

    gradients = single_process(jobs["gpipe"], steps=1).gradients
    with pytest.raises(LabError, match="no rank has the gradients of another"):
        difference(jobs["gpipe"], "gradients", {**gradients, "another": gradients["body.norm.weight"]})


def test_a_measured_run_reports_what_it_measured() -> None:
    outcome = run(
        load_spec(
            {
                "family": "parallel",
                "policy": "one_f_one_b",
                "knobs": {"micro_batches": 2},
                "workload": {"source": "zoo:gpt2-tiny", "options": {"batch": 4, "sequence": 16}},
                "hardware": "local",
                "mode": "measured",
            }
        )
    )
    assert (outcome.status, outcome.violations) == ("ok", [])
    assert outcome.metrics["max_gradient_error"]["value"] <= 1e-6
    assert outcome.metrics["step_time"]["value"] > 0
    sent = outcome.plan["ranks"][0]["bytes_by_collective"]["send"]
    predicted = outcome.provenance["predicted"]["communication_by_worker"]
    assert predicted == outcome.plan["communication_by_worker"]
    assert sent == 4 * 16 * 64 * 4  # both micro-batches' activations: samples x tokens x width in float32


def test_what_is_simulated_only_is_refused_before_a_process_starts(jobs: dict[str, Any]) -> None:
    from experiments.core.progress import silent
    from experiments.parallel.live import measure

    job = jobs["gpipe"]
    plan = replace(job.plan, zero=2)
    with pytest.raises(BadInput, match="ZeRO stage 2 or 3 in a pipeline"):
        measure(plan, chain(2), job.source, 0, silent)
    rows, source = _gpt(OPTIONS, OPERATORS)
    hardware = cluster(1, 2)
    for policy, what in (
        (Megatron(tensor=1, pipeline=1, context=2), "context parallelism"),
        (
            Megatron(tensor=2, pipeline=1, recompute="selective"),
            "operators of a block that are computed again alone",
        ),
    ):
        plan = policy.place(rows, hardware, 8, estimate(rows, hardware))
        with pytest.raises(BadInput, match=what):
            measure(plan, rows, source, 0, silent)


def test_a_rank_that_fails_ends_the_others_and_says_why(tmp_path: Path, jobs: dict[str, Any]) -> None:
    """There is no job in the folder."""
    from experiments.core.progress import silent
    from experiments.parallel.live.launch import RANK, launch

    with pytest.raises(LabError, match=r"rank \d ended with code 1: FileNotFoundError: .*job.json"):
        launch(replace(jobs["gpipe"], folder=tmp_path), silent)
    assert children_of(RANK) == []


def test_ranks_that_hang_are_ended_at_the_time_limit(tmp_path: Path, jobs: dict[str, Any]) -> None:
    """Both ranks sleep for an hour."""
    from experiments.core.progress import silent
    from experiments.parallel.live.launch import launch

    hanging = "tests.experiments.parallel.hang"
    with pytest.raises(LabError, match="no answer from the ranks after 1 s"):
        launch(replace(jobs["gpipe"], folder=tmp_path), silent, module=hanging, timeout=1.0)
    assert children_of(hanging) == []


def children_of(module: str) -> list[str]:
    """Processes that were forked of a module and are still there."""
    command = ["pgrep", "--parent", str(server_of(module).pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
