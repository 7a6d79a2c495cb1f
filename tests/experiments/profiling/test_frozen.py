"""A step that trains a part of a model: the rest has neither gradient nor state, and saves what is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.autograd.graph import saved_tensors_hooks  # noqa: E402

from experiments.core.errors import BadInput  # noqa: E402
from experiments.core.options import WorkloadOptions  # noqa: E402
from experiments.core.precision import describe_states, states_of  # noqa: E402
from experiments.core.spec import Workload  # noqa: E402
from experiments.models.build import build  # noqa: E402
from experiments.profiling.capture import few_blocks  # noqa: E402
from experiments.profiling.program import real_inputs  # noqa: E402
from experiments.sources import layers_of, step_of  # noqa: E402
from experiments.workloads.model import ModelSource  # noqa: E402
from experiments.workloads.step import KINDS  # noqa: E402
from tests.experiments.captures import capture, trace  # noqa: E402
from tests.experiments.configs import NO_DROPOUT  # noqa: E402

pytestmark = pytest.mark.torch

GPT = {
    "model_type": "gpt2",
    "n_layer": 3,
    "n_embd": 32,
    "n_head": 4,
    "n_positions": 16,
    "vocab_size": 50,
    **NO_DROPOUT,
}
#: All but the last block, the last norm and the head, whose weight is the token table's.
LOWER = "transformer.wpe.*, transformer.h.[01].*"


def source(**options: Any) -> ModelSource:
    return ModelSource("gpt", config=GPT, options=WorkloadOptions(batch=2, sequence=16, **options))


def plain_step(asked: ModelSource, steps: int) -> tuple[nn.Module, list[Tensor]]:
    """The same training in torch alone: its module, and the losses."""
    torch.manual_seed(0)
    module = build(ModelSource("gpt", config=GPT, options=asked.options)).module
    batch = real_inputs(asked, 0)[-2:]
    trained = [value for value in module.parameters() if value.requires_grad]
    optimizer = torch.optim.AdamW(trained)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = module(*batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return module, losses


def test_a_partly_frozen_step_is_torchs_own_bit_for_bit() -> None:
    asked = source(frozen=LOWER)
    traced = trace(asked)
    ours = traced.make_inputs()
    module, losses = plain_step(asked, 3)
    with torch.no_grad():
        for loss in losses:
            assert torch.equal(traced.graph_module(*ours), loss)
    updated = dict(zip((leaf.name for leaf in traced.leaves), ours, strict=True))
    for name, value in module.named_parameters():
        assert torch.equal(updated[name], value.detach()), name


def test_frozen_parameters_have_neither_gradient_nor_state() -> None:
    whole, part = capture(source()), capture(source(frozen=LOWER))
    trained = part.facts["trained_parameters"]
    assert "trained_parameters" not in whole.facts and part.facts["frozen"] == LOWER
    frozen = part.facts["parameters"] - trained
    assert part.facts["parameters"] == whole.facts["parameters"] and frozen > trained
    assert part.state_bytes == 16 * trained + 4 * frozen
    assert not any(
        ".h.0." in name and kind == KINDS.index("optimizer_state")
        for name, kind in zip(part.tensors.name, part.tensors.kind, strict=True)
    )
    words = describe_states(states_of(part.facts)["states"])
    assert f"{trained / part.facts['parameters']:.2%} of them trained" in words


def test_below_the_lowest_trained_part_nothing_is_saved() -> None:
    """What autograd saves in a plain step is what lives from the forward into the backward pass of ours."""
    asked = source(frozen="transformer.wte.*, " + LOWER)
    step = capture(asked)
    assert not {name for name in activations_in_backward(step) if ".h.0." in name}
    module = build(asked).module
    saved: list[int] = []
    with saved_tensors_hooks(lambda value: saved.append(value.data_ptr()) or value, lambda value: value):
        module(*real_inputs(asked, 0)[-2:])
    whole: list[int] = []
    plain = build(source()).module
    with saved_tensors_hooks(lambda value: whole.append(value.data_ptr()) or value, lambda value: value):
        plain(*real_inputs(source(), 0)[-2:])
    assert len(saved) < len(whole) / 2
    assert step.live_peak < capture(source()).live_peak


def activations_in_backward(step: Any) -> set[str]:
    """Modules of the forward ops whose outputs a backward op reads."""
    phases = step.ops.phase
    made_by = {int(t): op for op in np.nonzero(phases == 0)[0].tolist() for t in step.outputs[op]}
    read = {int(t) for op in np.nonzero(phases == 1)[0].tolist() for t in step.inputs[op]}
    return {f".{step.ops.module[made_by[t]]}." for t in read if t in made_by and not step.persistent[t]}


@pytest.mark.parametrize(
    ("patterns", "said"),
    [("transformer.h.9.*", "freezes no parameter"), ("*", "freezes all parameters")],
)
def test_patterns_that_freeze_nothing_or_all_are_refused(patterns: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as caught:
        capture(source(frozen=patterns))
    assert caught.value.where == "options.frozen"


def test_blocks_of_a_partly_frozen_model_are_all_traced() -> None:
    asked = ModelSource("zoo:gpt2", zoo="gpt2", options=WorkloadOptions(frozen="h.0.*"))
    assert few_blocks(asked) == (asked, {})


def test_plans_and_recorded_steps_that_cannot_freeze_refuse_to(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(GPT))
    tuned = WorkloadOptions(frozen="h.0.*")
    with pytest.raises(BadInput, match="not for parallel plans"):
        layers_of(Workload(str(file), options=tuned), None)
    with pytest.raises(BadInput, match="a recorded step is what it is"):
        step_of(Workload("package:g10/bert-256.step", options=tuned), None)
