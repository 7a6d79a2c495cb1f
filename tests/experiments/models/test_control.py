"""Models whose control flow is in modules: what the constructs compute, and what cannot be asked of them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from experiments.core.errors import BadInput  # noqa: E402
from experiments.core.options import WorkloadOptions  # noqa: E402
from experiments.models.build import build  # noqa: E402
from experiments.models.control.constructs import Branch, Loop, Recursion  # noqa: E402
from experiments.models.control.tree import balanced_children, chain  # noqa: E402
from experiments.models.model import Model  # noqa: E402
from experiments.profiling.capture import capture  # noqa: E402
from experiments.workloads.model import ModelSource  # noqa: E402

pytestmark = pytest.mark.torch


class Calls(nn.Module):
    def __init__(self, function: object) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: object) -> object:
        return self.function(*inputs)  # type: ignore[operator]


def source(name: str, **options: object) -> ModelSource:
    return ModelSource(name, zoo=name, options=WorkloadOptions(**{"training": False, **options}))  # type: ignore[arg-type]


def built(name: str, **options: object) -> tuple[Model, list[Tensor]]:
    torch.manual_seed(0)
    model = build(source(name, **options))
    generator = torch.Generator().manual_seed(0)
    return model, [spec.sample(torch.float32, generator) for spec in model.batch(False)]


def test_a_loop_doubles_five_times_unless_its_condition_ends_it() -> None:
    double = Calls(lambda step, x: (x * 2,))
    assert Loop(double, trips=5)((), (torch.tensor(1.0),))[0].item() == 32
    below_ten = Calls(lambda x: x < 10)
    assert Loop(double, trips=5, condition=below_ten)((), (torch.tensor(1.0),))[0].item() == 16
    assert Loop(double, trips=0)((), (torch.tensor(1.0),))[0].item() == 1


def test_a_branch_runs_one_side() -> None:
    ran = []
    branch = Branch(Calls(lambda x: (ran.append("taken"), x + 1)[1]), Calls(lambda x: x))
    assert [branch(torch.tensor(flag), torch.tensor(1)).item() for flag in (True, False)] == [2, 1]
    assert ran == ["taken"]


@pytest.mark.parametrize("shape", [balanced_children, chain])
def test_recursion_visits_every_word_once(shape: object) -> None:
    """The sum of five words' numbers, whatever the tree: leaves are the last five of nine nodes."""
    left, right = shape(5)  # type: ignore[operator]
    tree = Recursion(nn.Identity(), Calls(lambda a, b: a + b), left, right)
    assert tree(0, torch.arange(9.0)).item() == 4 + 5 + 6 + 7 + 8


@pytest.mark.parametrize(
    ("name", "parameters", "shape"),
    [
        # Ten layers of four gates (256 x 256 twice, a bias) and 256 x 10 + 10.
        ("lstm", 10 * 4 * (2 * 256**2 + 256) + 2570, (1, 10)),
        ("nasrnn", 8 * (2 * 256**2 + 256) + 2570, (1, 10)),
        ("seq2seq", 12 * 4 * (2 * 128**2 + 128), (1, 128)),
        ("deepspeech2", 6_492_157, (10, 1, 29)),
        ("rae", 1024 * 512 + 512, (1, 512)),
    ],
)
def test_a_recurrent_model_has_the_sizes_that_its_papers_give(
    name: str, parameters: int, shape: tuple[int, ...]
) -> None:
    model, inputs = built(name, batch=1)
    assert sum(parameter.numel() for parameter in model.module.parameters()) == parameters
    assert model.module(*inputs).shape == shape


def test_the_decoder_stops_when_the_sentence_ends_and_blockdrop_runs_some_blocks() -> None:
    model, (hidden, noise) = built("greedy-decoder")
    words, _ = model.module(hidden, noise)
    ended = words.flatten().tolist().index(0)
    assert 0 < ended < 49
    assert not words[ended:].any()
    drop, (pictures,) = built("blockdrop")
    wanted = [drop.module.body.policy(x)[0] > 0 for x in (pictures, -pictures)]
    assert 0 < int(wanted[0].sum()) < 15
    assert not torch.equal(*wanted)


def test_a_lstm_is_captured_with_its_loop_unrolled() -> None:
    step = capture(source("lstm", sequence=2))
    # Each step of a layer has eight products of [1, 256] by [256, 256]; then the classifier.
    assert step.ops.target.count("aten.mm.default") == 2 * 10 * 8
    assert step.flops >= 2 * 10 * 8 * 2 * 256**2


def test_models_whose_data_decide_say_so() -> None:
    with pytest.raises(BadInput, match="control flow that its data decide"):
        capture(source("blockdrop"))
    with pytest.raises(BadInput, match="has no training step: which blocks run is a step function"):
        build(source("blockdrop", training=True))
