"""Blocks of ``transformers``' GPT-2 and Llama cut among devices: gradients of one process over gloo, and the
collectives of Megatron's table.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload
from experiments.parallel.policies.megatron import Megatron
from experiments.parallel.simulator import simulate
from experiments.sources import layers_of
from experiments.workloads.hf import dropouts
from experiments.workloads.layers import LayerGraph
from experiments.workloads.model import ModelSource
from experiments.workloads.transformer_layers import OPERATORS
from tests.experiments.parallel.builders import cluster, estimate
from tests.experiments.parallel.ranks import carry_out

#: torch 2.13 renames the flat collectives; 2.11 has the old names alone.
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")]

BATCH, TOKENS, WIDTH = 4, 8, 16
GPT2 = {
    "model_type": "gpt2",
    "n_layer": 2,
    "n_embd": WIDTH,
    "n_head": 4,
    "n_positions": TOKENS,
    "vocab_size": 32,
}
LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": WIDTH,
    "intermediate_size": 40,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": TOKENS,
    "vocab_size": 32,
}
#: Built like Llama, with biases of queries, keys and values.
QWEN2 = {**LLAMA, "model_type": "qwen2", "tie_word_embeddings": False}
DEPTH = {"gpt2": "n_layer", "llama": "num_hidden_layers"}

#: Four ranks each.
JOBS: dict[str, tuple[dict[str, Any], Megatron]] = {
    "gpt2: tensor 4": (GPT2, Megatron(tensor=4, pipeline=1, micro_batch=2)),
    "gpt2: tensor 2 x data 2, blocks computed again": (
        GPT2,
        Megatron(tensor=2, pipeline=1, micro_batch=1, recompute="blocks"),
    ),
    "llama: tensor 2 x pipeline 2": (LLAMA, Megatron(tensor=2, pipeline=2, micro_batch=2)),
    "llama: tensor 2 x data 2, zero 1": (LLAMA, Megatron(tensor=2, pipeline=1, micro_batch=1, zero=1)),
    "qwen2: tensor 2 x data 2": (QWEN2, Megatron(tensor=2, pipeline=1, micro_batch=2)),
}


def read(folder: Path, config: dict[str, Any], dtype: str = "float64") -> tuple[LayerGraph, ModelSource]:
    """The operators of a configuration, and its model."""
    dropout = False if dropouts(config) else None  # masks would differ from rank to rank
    options = WorkloadOptions(batch=BATCH, sequence=TOKENS, optimizer="adamw", dtype=dtype, dropout=dropout)
    path = folder / f"config-{len(list(folder.iterdir()))}.json"  # what a path has is read once
    path.write_text(json.dumps(config))
    rows, loaded = layers_of(
        Workload(str(path), options=options), cluster(1, 4).device, granularity=OPERATORS
    )
    return rows, loaded.value


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    from experiments.parallel.live.job import Job

    folder = tmp_path_factory.mktemp("blocks")
    made = {}
    for number, (name, (config, policy)) in enumerate(JOBS.items()):
        rows, source = read(folder, config)
        plan = policy.place(rows, cluster(1, 4), BATCH, estimate(rows, cluster(1, 4), "float64"))
        made[name] = Job(plan, rows.layer, source, 0, folder / str(number))
        made[name].folder.mkdir()
        made[name].save()
    carry_out("tests.experiments.parallel.all_plans", folder, 4)
    return made


@pytest.mark.parametrize("name", JOBS)
def test_gradients_and_weights_are_those_of_one_process(jobs: dict[str, Any], name: str) -> None:
    from experiments.parallel.live import difference, single_process

    reference = single_process(jobs[name], steps=2)
    assert difference(jobs[name], "gradients", reference.gradients) <= 1e-13
    assert difference(jobs[name], "weights", reference.weights) <= 1e-9


def handed_over(folder: Path, config: dict[str, Any], policy: Megatron) -> dict[str, int]:
    """Bytes by collective of the first of two ranks, which must be the simulator's."""
    from experiments.parallel.live.fake import plan_handed_over_bytes

    rows, source = read(folder, config, "float32")
    asked = estimate(rows, cluster(1, 2))
    plan = policy.place(rows, cluster(1, 2), BATCH, asked)
    found = simulate(plan, asked).communication_by_kind[0]
    counted = plan_handed_over_bytes(plan, rows, source, 0, 0)
    assert counted == {kind: round(size) for kind, size in found.items()}
    return counted


@pytest.mark.parametrize("config", [GPT2, LLAMA], ids=lambda config: str(config["model_type"]))
def test_a_block_sums_twice_forward_and_twice_backward(tmp_path: Path, config: dict[str, Any]) -> None:
    """One more block: four all-reduces of all activations between blocks, and nothing else."""
    policy = Megatron(tensor=2, pipeline=1, micro_batch=2)
    two = handed_over(tmp_path, config, policy)
    three = handed_over(tmp_path, {**config, DEPTH[config["model_type"]]: 3}, policy)
    assert three["all_reduce"] - two["all_reduce"] == 4 * BATCH * TOKENS * WIDTH * 4
    assert set(two) == {"all_reduce"}


def test_heads_of_keys_that_do_not_divide_are_named(tmp_path: Path) -> None:
    import torch

    from experiments.models.build import build
    from experiments.parallel.live.blocks import divide_heads, layout_of

    _, source = read(tmp_path, LLAMA)
    with torch.device("meta"):
        block = build(source, weights=False).module.get_submodule("body.inner.model.layers.0")
    layout = layout_of(block)
    assert layout is not None and layout.attention == "self_attn"
    with pytest.raises(BadInput, match="2 heads over 4 devices"):
        divide_heads("layers.0", block.get_submodule("self_attn"), layout, 4)


def test_a_block_with_parameters_of_its_own_is_not_known(tmp_path: Path) -> None:
    """Norms of queries and keys are whole on every rank, which has its own heads: their gradients are parts
    of sums, so a block that has them is refused.
    """
    import torch

    from experiments.core.progress import silent
    from experiments.models.build import build
    from experiments.parallel.live import measure
    from experiments.parallel.live.blocks import layout_of

    rows, source = read(tmp_path, {**LLAMA, "model_type": "qwen3", "head_dim": 4})
    with torch.device("meta"):
        block = build(source, weights=False).module.get_submodule("body.inner.model.layers.0")
    assert layout_of(block) is None
    plan = Megatron(tensor=2, pipeline=1).place(rows, cluster(1, 2), BATCH, estimate(rows, cluster(1, 2)))
    with pytest.raises(BadInput, match="Qwen3DecoderLayer"):
        measure(plan, rows, source, 0, silent)
