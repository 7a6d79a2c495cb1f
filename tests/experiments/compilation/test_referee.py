"""What the referee sees: state, kinds of results, places by slice, random numbers; and what it lets pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from experiments.compilation.interface import Graph, GraphNode, Rewritten, Workbench  # noqa: E402
from experiments.compilation.live.backends.base import Compiled, Task  # noqa: E402
from experiments.compilation.live.verify import RANDOM, Verification, verify  # noqa: E402
from experiments.compilation.policies.dce import Dce  # noqa: E402
from tests.experiments.compilation.graphs import module_of, rewritten  # noqa: E402

pytestmark = pytest.mark.torch


def judged(
    module: Any, candidate: Callable[..., Any], *inputs: Tensor, training: bool = False
) -> Verification:
    """The verdict on a candidate; a function of the inputs stands for a module of that function."""
    module = module if isinstance(module, nn.Module) else module_of(module)
    task = Task(module.train(training), inputs, "cpu", training=training)
    return verify(task, Compiled(candidate, 0.0, 0.0), 0)


X = torch.tensor([[0.5, -1.25, 2.0], [1.5, 0.25, -0.75]])


class Counter(nn.Module):
    """Adds the number of calls so far."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        found = x + self.calls
        self.calls.add_(1)
        return found


class DropsWrites(Dce):
    """Takes writes to buffers for dead code."""

    def rewrite(self, graph: Graph, bench: Workbench) -> Rewritten:
        def stays(node: GraphNode) -> bool:
            return not node.mutates

        return Rewritten(Graph(tuple(node for node in graph.nodes if stays(node))))


def test_a_rewrite_that_drops_the_writes_to_a_buffer_is_rejected() -> None:
    _, _, right = rewritten(Counter(), Dce(), X)
    assert right.ok, right.counterexample
    _, _, wrong = rewritten(Counter(), DropsWrites(), X)
    assert wrong.counterexample.startswith("input as given, calls afterwards: element 0 is 1 instead of 2")


def test_running_statistics_that_are_never_written_are_missed_in_training_resnet18() -> None:
    from dataclasses import replace

    from experiments.core.spec import load_spec
    from experiments.models.build import build
    from experiments.sources import load

    spec = {"family": "compilation", "policy": "dce", "hardware": "local", "mode": "measured"}
    spec["workload"] = {"source": "zoo:resnet18", "options": {"batch": 2, "image": 32}}  # type: ignore[assignment]
    source = load(load_spec(spec).workload).value
    model = build(replace(source, options=replace(source.options, training=True)))
    inputs = tuple(one.sample(torch.float32, torch.Generator().manual_seed(0)) for one in model.inputs)
    _, _, wrong = rewritten(model.module, DropsWrites(training=True), *inputs)
    assert "running_mean afterwards" in wrong.counterexample or "num_batches" in wrong.counterexample


def test_a_model_is_left_as_it_was_and_a_result_kept_from_its_first_state_is_missed() -> None:
    module = Counter()
    assert judged(module, module, X).ok
    assert module.calls == 1
    frozen = judged(module, lambda x: (module.calls.add_(1), x + 1.0)[1], X)
    assert frozen.counterexample.startswith("input drawn anew, output 0")


def test_equal_numbers_round_alike_so_that_their_mean_is_as_far_off_as_each_of_them() -> None:
    x = torch.full((16, 4096), float(torch.rand((), generator=torch.Generator().manual_seed(9)) * 0.004 + 3))
    multiplied_out = judged(lambda x: (x * (x - 3)).mean(1), lambda x: (x * x - 3 * x).mean(1), x)
    assert multiplied_out.ok, multiplied_out.counterexample
    wrong = judged(lambda x: (x * (x - 3)).mean(1), lambda x: (x * (x - 2.9999)).mean(1), x)
    assert wrong.counterexample.startswith("input as given, output 0")


def test_an_input_that_is_written_to_is_a_result() -> None:
    x = X.clone()
    assert judged(lambda x: x.add_(1), lambda x: x.add_(1), x).ok
    assert torch.equal(x, X)
    wrong = judged(lambda x: x.add_(1), lambda x: x + 1, x)
    assert "input 0 afterwards" in wrong.counterexample


class Holds(nn.Module):
    """Writes to a tensor that is no buffer, behind autograd's back."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = torch.zeros(3)

    def forward(self, x: Tensor) -> Tensor:
        self.seen.data.copy_(x.sum(0))
        return x * 2


def test_a_tensor_that_is_no_buffer_is_state_as_well() -> None:
    module = Holds()
    assert judged(module, module, X).ok
    assert "seen afterwards" in judged(module, lambda x: x * 2, X).counterexample


@pytest.mark.parametrize(
    ("body", "candidate", "said"),
    [
        (lambda x: (x, x + 1), lambda x: [x, x + 1], "gives"),
        (lambda x: {"a": x}, lambda x: {"b": x}, "gives"),
        (lambda x: x + 1, lambda x: (x + 1).double(), "has type float64 instead of float32"),
        (lambda x: x + 1, lambda x: (x + 1).bfloat16(), "has type bfloat16 instead of float32"),
        (lambda x: x.sum(0), lambda x: x.sum(0, keepdim=True), "has shape (1, 3) instead of (3,)"),
        (lambda x: x > 0, lambda x: x >= 0, "input zero, output 0: element 0 is 1 instead of 0"),
        (lambda x: (x * 4).long(), lambda x: (x * 4).long() + (x > 1), "element 2 is 9 instead of 8"),
        (
            lambda x: torch.full((1,), 2**60) + x.long()[0, 0],
            lambda x: torch.full((1,), 2**60) + x.long()[0, 0] + 1,
            "element 0",
        ),
        (lambda x: torch.complex(x, x), lambda x: torch.complex(x, 1.01 * x), "output 0: element"),
        (lambda x: (x, 1 / (x * 0)), lambda x: (x, -1 / (x * 0)), "output 1: element"),
        (lambda x: x / x, lambda x: x / x.where(x != 0, 1), "input zero, output 0: element 0 is 0 instead"),
        (lambda x: x + 1, lambda x: torch.where(x > 1e3, x / 0, x + 1), "element"),
        (lambda x: (x, 3), lambda x: (x, 4), "output 1 is 4 instead of 3"),
        (lambda x: x + 1, lambda x: x.view(4) + 1, "raises RuntimeError"),
    ],
)
def test_what_differs_in_kind_or_place_is_seen(
    body: Callable[..., Any], candidate: Callable[..., Any], said: str
) -> None:
    assert judged(body, body, X).ok
    found = judged(body, candidate, X)
    assert said in found.counterexample, found.counterexample


@pytest.mark.parametrize("axis", [0, 1])
def test_a_channel_beside_one_a_million_times_larger_counts(axis: int) -> None:
    large = torch.tensor([1e6, 1.0, 1.0])
    layer = nn.Linear(3, 3)

    def body(x: Tensor) -> Tensor:
        scaled: Tensor = layer(x) * large
        return scaled if axis else scaled.t()

    def off(x: Tensor) -> Tensor:
        scaled: Tensor = layer(x) * large * torch.tensor([1.0, 1.001, 1.0])
        return scaled if axis else scaled.t()

    x = torch.randn(5, 3)
    assert judged(body, lambda x: body(x * 2) - body(x) + (body(x * 0)), x).ok
    assert not judged(body, off, x).ok
    assert not judged(lambda x: body(x).sum(1 - axis), lambda x: off(x).sum(1 - axis), x).ok


class Mixed(nn.Module):
    """Names float32 in its own lines, in four ways."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.held = torch.randn(3, 3)

    def forward(self, x: Tensor) -> Any:
        table = torch.ones(3, 3, dtype=torch.float32)
        y = self.layer(x.to(torch.float32)) @ table @ self.held
        return y.float(), y > 0, y.argmax(-1), (y * 0 == 0).all()


def test_a_model_that_names_float32_and_gives_truth_values_is_judged() -> None:
    module = Mixed()
    found = judged(module, module, X)
    assert found.ok and found.bit_equal, found.counterexample

    def off(x: Tensor) -> Any:
        y, *others = module(x)
        return (y * 1.0001, *others)

    assert "output 0" in judged(module, off, X).counterexample


class Untouched(nn.Module):
    """A loss with a gradient that is zero, one that is not there, and one that cancels before a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(3, 4), nn.BatchNorm1d(4)
        self.nothing, self.unread = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.norm(self.layer(x)) ** 2 + (self.nothing * 0 * x).sum()
        return made.sum()


def test_gradients_that_are_zero_or_missing_are_no_difference() -> None:
    module = Untouched()
    assert judged(module, module, torch.randn(6, 3), training=True).ok

    def other_order(x: Tensor) -> Tensor:
        y = x @ module.layer.weight.t() + module.layer.bias
        made: Tensor = (module.norm(y.flip(0)) ** 2).sum()
        return made

    found = judged(module, other_order, torch.randn(6, 3), training=True)
    assert found.ok, found.counterexample
    assert found.max_relative_error < 2

    def no_bias(x: Tensor) -> Tensor:
        made: Tensor = (module.norm(F.linear(x, module.layer.weight) + 1.0) ** 2).sum()
        return made

    assert judged(module, no_bias, torch.randn(6, 3), training=True).ok is False


def test_a_model_that_eager_refuses_float64_or_an_input_for_is_judged_on_the_rest() -> None:
    def picky(x: Tensor) -> Tensor:
        if x.dtype == torch.float64 or x.abs().max() > 1e3:
            raise ValueError("no")
        return x * 3

    found = judged(picky, lambda x: x + x + x, X)
    assert found.ok and found.inputs_compared == 5, found.counterexample
    assert not judged(picky, lambda x: x * 3.001, X).ok


def test_whole_numbers_are_drawn_within_the_range_that_is_given() -> None:
    table, x = nn.Embedding(9, 3), torch.tensor([[0, 4], [8, 4]])
    seen: list[int] = []

    def look_up(x: Tensor) -> Tensor:
        seen.extend(x.flatten().tolist())
        found: Tensor = table(x)
        return found

    assert judged(table, look_up, x).ok
    assert set(seen) - {0, 4, 8} and max(seen) <= 8


def test_random_numbers_are_drawn_alike_or_nothing_can_be_said() -> None:
    module = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5))

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = module

        def forward(self, x: Tensor) -> Tensor:
            made: Tensor = self.body(x) + torch.rand_like(self.body(x))
            return made.square().sum()

    loss = Loss()
    assert judged(loss, loss, X, training=True).ok
    wrong = judged(loss, lambda x: loss(x) * 1.001, X, training=True)
    assert "input as given, loss" in wrong.counterexample

    def others(x: Tensor) -> Tensor:
        torch.rand(1)
        made: Tensor = loss(x)
        return made

    found = judged(loss, others, X, training=True)
    assert found.counterexample == RANDOM and not found.comparable
    unread = judged(lambda x: (torch.rand(3), x + 1)[1], lambda x: x + 1, X)
    assert unread.counterexample == RANDOM


def test_numbers_that_cancel_may_be_off_by_what_rounding_makes_and_no_more() -> None:
    weight = torch.randn(64, 1)
    weight -= weight.mean()
    x = torch.ones(4, 64) + 1e-6 * torch.randn(4, 64)
    order = torch.randperm(64)
    assert judged(lambda x: x @ weight, lambda x: x[:, order] @ weight[order], x).ok
    assert judged(lambda x: x - x, lambda x: (x * 3 - x) - 2 * x, x).ok
    assert not judged(lambda x: x @ weight, lambda x: x @ weight + 1e-4 * x[:, :1], x).ok
    assert not judged(lambda x: x - x, lambda x: 1e-3 * x, x).ok


def test_what_is_read_twice_is_one_number_however_rounding_moves_it() -> None:
    """``y - y`` is 0 in any rounding, so what it is multiplied with cannot excuse another ``y``.

    Moved apart, a product of the zero with large numbers was noise beyond all that the loss is made of.
    """

    class Cancels(nn.Module):
        def __init__(self, most: float) -> None:
            super().__init__()
            self.most = most

        def forward(self, x: Tensor) -> Tensor:
            y = x.clamp(0, self.most)
            nothing = (x @ (y - y).t()) @ x
            return nothing.square().mean() + y.square().mean()

    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    task = Task(Cancels(float("inf")), (x,), "cpu")
    assert verify(task, Compiled(Cancels(float("inf")), 0.0, 0.0), 0).ok
    assert not verify(task, Compiled(Cancels(60.0), 0.0, 0.0), 0).ok


def test_a_mean_of_thousands_may_be_added_one_after_the_other() -> None:
    """Eager adds running statistics in blocks or more bits; a compiled loop adds in float32, term by term.

    A mean near zero of 65,536 numbers near one is then off by a share of one, not of the mean. Half a
    thousandth of one off is wrong.
    """

    class Mean(nn.Module):
        seen: Tensor

        def __init__(self, off: float | None) -> None:
            super().__init__()
            self.off = off
            self.register_buffer("seen", torch.zeros(2))

        def forward(self, x: Tensor) -> Tensor:
            mean = x.mean((0, 2))
            if self.off is not None:
                one_by_one = np.add.accumulate(x.numpy(), axis=2)[0, :, -1]
                mean = torch.from_numpy(one_by_one) / x.shape[2] + self.off
            self.seen.lerp_(mean, 0.1)
            return x * 2

    x = torch.randn(1, 2, 65536, generator=torch.Generator().manual_seed(0))
    x = x - x.mean(2, keepdim=True) + 1e-4
    assert judged(Mean(None), Mean(0.0), x).ok
    assert not judged(Mean(None), Mean(5e-4), x).ok


def test_a_walk_begins_anew_in_every_row_and_ends_with_its_last_step() -> None:
    from experiments.compilation.live.accumulation import random_walk

    steps = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert random_walk(steps, (1,)).tolist() == [[6.0, 5.0, 3.0], [15.0, 11.0, 6.0]]
    assert random_walk(steps, (0,)).tolist() == [[5.0, 7.0, 9.0], [4.0, 5.0, 6.0]]
    assert random_walk(steps, (0, 1)).tolist() == [[21.0, 20.0, 18.0], [15.0, 11.0, 6.0]]


def test_rounding_moves_running_statistics_too() -> None:
    """A normalization writes them without saying so: what was moved must not be written in their place."""
    from experiments.compilation.live.reference import InFloat64

    norm = nn.BatchNorm2d(2).double()
    truth = nn.BatchNorm2d(2).double()
    x = torch.randn(3, 2, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 1
    truth(x)
    with InFloat64(torch.float32, "cpu", roundoff=2.0**-24, seed=0):
        norm(x)
    off = (norm.running_mean - truth.running_mean).abs().max()  # type: ignore[operator]
    assert 0 < off < 1e-5, "moved by rounding, and not left at 0"


def test_a_long_product_in_float64_shows_life_and_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    from experiments.compilation.live import reference

    monkeypatch.setattr(reference, "LONG", 1.0)
    monkeypatch.setattr(reference, "run_reporting", lambda work, report: (report(), work())[1])
    a, b = torch.randn(8, 16).double(), torch.randn(32, 16).double().requires_grad_()
    reports: list[float] = []
    with reference.InFloat64(torch.float32, "cpu", progress=lambda fraction, _: reports.append(fraction)):
        product = nn.functional.linear(a, b)
        (gradient,) = torch.autograd.grad(product.sum(), b)
    assert len(reports) == 2, "the product and its gradient"
    assert torch.equal(product, a @ b.T)
    assert torch.equal(gradient, torch.ones(32, 8).double() @ a)

    def cancel(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), reference.InFloat64(torch.float32, "cpu", progress=cancel):
        nn.functional.linear(a, b)


def test_a_bend_that_any_order_of_rounding_may_take_either_way_is_no_difference() -> None:
    """1 - 1 + 1e-8 is positive in float32, 1 + 1e-8 - 1 is 0: a gradient of ReLU is there or not, rightly."""

    class Bends(nn.Module):
        def __init__(self, weight: nn.Parameter, order: list[int], slope: float = 1.0) -> None:
            super().__init__()
            self.weight, self.order, self.slope = weight, order, slope

        def forward(self, x: Tensor) -> Tensor:
            first, second, third = (self.weight[place] * x[place] for place in self.order)
            return (nn.functional.relu(first + second + third) * self.slope).sum()

    x = torch.tensor([1.0, -1.0, 1e-8]).view(3, 1).expand(3, 5).contiguous()
    weight = nn.Parameter(torch.ones(3, 5))
    eager = Bends(weight, [0, 1, 2])
    assert judged(eager, Bends(weight, [0, 2, 1]), x, training=True).ok
    assert not judged(eager, Bends(weight, [0, 1, 2], slope=1.01), x, training=True).ok
