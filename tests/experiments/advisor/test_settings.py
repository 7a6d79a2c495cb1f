"""Settings of a plan in three dialects: every torch name exists, every layout counts its blocks."""

from __future__ import annotations

import ast
import importlib
import json

import pytest

from experiments.advisor.settings import Recipe, settings_of
from experiments.advisor.settings.megatron import layout_of
from experiments.core.options import WorkloadOptions
from experiments.parallel.planning.transformers.plan import Degrees

OPTIONS = WorkloadOptions(
    batch=64, sequence=4096, dtype="bfloat16", optimizer="adamw", precision="bf16-mixed-fp32-grads"
)
#: 2 tensor x 2 pipeline of two chunks x 2 replicas, of a model of ten blocks.
DIVIDED = Degrees(2, 2, 2, 1, sequence=True, recompute="blocks", zero=1)
LAYOUTS = (
    DIVIDED,
    Degrees(),
    Degrees(zero=1),
    Degrees(zero=2, host_optimizer=True),
    Degrees(zero=3, recompute="blocks"),
    Degrees(expert=4, zero=1),
)


def recipe(layout: Degrees, *, saved: bool = False, options: WorkloadOptions = OPTIONS) -> Recipe:
    replicas = layout.replicas(8) * layout.mesh.joined
    return Recipe(layout, options, 1, 8, replicas, 64 // (replicas * layout.micro_batch), 10, 0, saved)


def texts(layout: Degrees, *, saved: bool = False) -> dict[str, str]:
    return {one.dialect: one.text for one in settings_of(recipe(layout, saved=saved))}


@pytest.mark.torch
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_name_that_torch_settings_import_exists(layout: Degrees) -> None:
    pytest.importorskip("torch")
    tree = ast.parse(texts(layout, saved=layout.zero == 3)["torch"])
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert imported
    for node in imported:
        module = importlib.import_module(str(node.module))
        assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


def test_a_plan_in_three_dimensions() -> None:
    found = texts(DIVIDED)
    assert (
        'init_device_mesh("cuda", (2, 2, 2), mesh_dim_names=("pipeline", "data", "tensor"))' in found["torch"]
    )
    assert "ScheduleInterleaved1F1B(stages, n_microbatches=32, loss_fn=loss)" in found["torch"]
    arguments = found["Megatron-LM"].split(" \\\n")
    assert "--tensor-model-parallel-size 2" in arguments
    assert "--pipeline-model-parallel-size 2" in arguments
    assert '--pipeline-model-parallel-layout "E' in found["Megatron-LM"]
    assert {"--sequence-parallel", "--use-distributed-optimizer", "--recompute-granularity full"} <= {
        *arguments
    }
    configuration = json.loads(found["DeepSpeed"])
    assert configuration["tensor_parallel"] == {"autotp_size": 2}
    assert configuration["train_batch_size"] == 64


def test_equal_chunks_are_told_by_their_number() -> None:
    even = Recipe(Degrees(1, 5, 2), OPTIONS, 1, 5, 1, 64, blocks=10)
    assert "--num-virtual-stages-per-pipeline-rank 2" in settings_of(even)[2].text


def test_layouts_count_every_block_once() -> None:
    assert layout_of([1, 2, 2, 1]) == "Et|(tt|)*2,tL"
    assert layout_of([3, 2]) == "Ettt|ttL"
    assert layout_of([2, 1, 2]) == "Ett|t|ttL"


def test_zero_3_is_fsdp2_and_zero_2_keeps_weights_between_passes() -> None:
    assert "reshard_after_forward=True" in texts(Degrees(zero=3))["torch"]
    assert "reshard_after_forward=False" in texts(Degrees(zero=2))["torch"]
    assert "ZeroRedundancyOptimizer" in texts(Degrees(zero=1))["torch"]
    assert "DistributedDataParallel" in texts(Degrees())["torch"]


def test_an_optimizer_on_the_host_in_every_dialect() -> None:
    found = texts(Degrees(zero=2, host_optimizer=True))
    assert "offload_policy=CPUOffloadPolicy()" in found["torch"]
    assert json.loads(found["DeepSpeed"])["zero_optimization"]["offload_optimizer"]["device"] == "cpu"
    assert "--optimizer-cpu-offload" in found["Megatron-LM"]


def test_what_a_dialect_cannot_say_stands_beside_it() -> None:
    _, deepspeed, megatron = settings_of(recipe(DIVIDED))
    assert any("PipelineModule(layers, num_stages=2)" in note for note in deepspeed.notes)
    assert any("CUDA_DEVICE_MAX_CONNECTIONS=1" in note for note in megatron.notes)
    adapted = recipe(Degrees(), options=WorkloadOptions(batch=64, adapter="lora", optimizer="adamw8bit"))
    for one in settings_of(adapted):
        assert any("PEFT" in note for note in one.notes)
        assert any("adamw8bit" in note for note in one.notes)
