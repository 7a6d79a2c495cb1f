"""Drawn programs with one step done otherwise: right ones pass, wrong ones of ten kinds do not.

A step is done as the model does it, in another way that is equal in real arithmetic, or wrongly. What is
wrong shows in float64 (``differs``): a mistake that nothing reads, or that changes nothing, is not drawn.
``LAB_PLANTED=500`` draws so many of each kind (a few by default, as tests should be quick).
"""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from experiments.compilation.live.backends.base import Compiled, Task  # noqa: E402
from experiments.compilation.live.verify import verify  # noqa: E402
from tests.figures import tell  # noqa: E402

pytestmark = pytest.mark.torch

EXAMPLES = int(os.environ.get("LAB_PLANTED", "4"))
ROWS, WIDTH = 5, 4
#: What fails is not made smaller: the programs are small.
DRAWN = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.generate],
)


class Parts(nn.Module):
    """What the steps share."""

    calls: Tensor
    seen: Tensor

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.scale = nn.Parameter(torch.tensor([1e6, 1.0, 0.5, 2.0]))
        self.register_buffer("calls", torch.ones(()))
        self.register_buffer("seen", torch.zeros(WIDTH))


def counted(parts: Parts, x: Tensor) -> Tensor:
    found = x + parts.calls
    parts.calls.add_(1)
    return found


def counted_first(parts: Parts, x: Tensor) -> Tensor:
    parts.calls.add_(1)
    return x + parts.calls


def counted_from_the_start(parts: Parts, x: Tensor) -> Tensor:
    parts.calls.add_(1)
    return x + 1.0


def counted_by_copy(parts: Parts, x: Tensor) -> Tensor:
    found = parts.calls + x
    parts.calls.copy_(parts.calls + 1)
    return found


def averaged(parts: Parts, x: Tensor) -> Tensor:
    with torch.no_grad():
        parts.seen.mul_(0.9).add_(0.1 * x.mean(0))
    return x * 2


def averaged_by_lerp(parts: Parts, x: Tensor) -> Tensor:
    with torch.no_grad():
        parts.seen.lerp_(x.sum(0) / len(x), 0.1)
    return x + x


def averaged_wrongly(parts: Parts, x: Tensor) -> Tensor:
    with torch.no_grad():
        parts.seen.mul_(0.9).add_(0.1 * x.amax(0))
    return x * 2


def one_channel_off(parts: Parts, x: Tensor) -> Tensor:
    off: Tensor = torch.tensor([1.0, 1.0, 1.0, 1.005], dtype=x.dtype)
    return x * parts.scale * off


def halves(parts: Parts, x: Tensor, layer: Any) -> Tensor:
    left, right = layer.weight[:, :2], layer.weight[:, 2:]
    found: Tensor = x[:, 2:] @ right.t() + torch.addmm(layer.bias, x[:, :2], left.t())
    return found


def joined(parts: Parts, x: Tensor, layer: Any) -> Tensor:
    first: Any = parts.layers[0]
    found: Tensor = F.linear(x, torch.cat((first.weight, layer.weight)))[:, WIDTH:] + layer.bias
    return found


def norm(x: Tensor, eps: float = 1e-5, unbiased: bool = False) -> Tensor:
    spread = x.var(-1, unbiased=unbiased, keepdim=True)
    found: Tensor = (x - x.mean(-1, keepdim=True)) * (spread + eps).rsqrt()
    return found


def norm_in_range(x: Tensor) -> Tensor:
    """Large rows are made small first: their squares would overflow in float32, and the result be 0."""
    centered = x - x.mean(-1, keepdim=True)
    size = centered.detach().abs().amax(-1, keepdim=True).clamp(min=1.0)
    small = centered / size
    found: Tensor = small * (small.square().mean(-1, keepdim=True) + 1e-5 / size / size).rsqrt()
    return found


def softmax(x: Tensor) -> Tensor:
    raised = (x - x.amax(-1, keepdim=True)).exp()
    return raised / raised.sum(-1, keepdim=True)


def in_bfloat16(x: Tensor) -> Tensor:
    return x.bfloat16().to(x.dtype)


Step = Callable[[Parts, Tensor, Tensor, int], Tensor]
#: How the model does it.
STEPS: dict[str, Step] = {
    "layer": lambda p, x, y, n: p.layers[n](x),
    "norm": lambda p, x, y, n: F.layer_norm(x, (WIDTH,)),
    "scale": lambda p, x, y, n: x * p.scale,
    "relu": lambda p, x, y, n: torch.relu(x),
    "add": lambda p, x, y, n: x + y,
    "sub": lambda p, x, y, n: x - y,
    "product": lambda p, x, y, n: (x @ y.t()) @ x / WIDTH,
    "softmax": lambda p, x, y, n: x.softmax(-1),
    "count": lambda p, x, y, n: counted(p, x),
    "average": lambda p, x, y, n: averaged(p, x),
    "random": lambda p, x, y, n: x + torch.rand_like(x),
}
#: Equal in real arithmetic, in range where the step is, and the same to buffers and generators.
RIGHT: dict[str, list[Step]] = {
    "layer": [lambda p, x, y, n: halves(p, x, p.layers[n]), lambda p, x, y, n: joined(p, x, p.layers[n])],
    "norm": [lambda p, x, y, n: norm_in_range(x)],
    "scale": [lambda p, x, y, n: (p.scale[:, None] * x.t()).t(), lambda p, x, y, n: (2 * x) * (p.scale / 2)],
    "relu": [lambda p, x, y, n: x.clamp(min=0), lambda p, x, y, n: torch.where(x > 0, x, 0)],
    "add": [lambda p, x, y, n: y + x, lambda p, x, y, n: (y * 3 + x * 3) / 3],
    "sub": [lambda p, x, y, n: -(y - x), lambda p, x, y, n: x + -1 * y],
    "product": [lambda p, x, y, n: x @ (y.t() @ x) / WIDTH, lambda p, x, y, n: (y @ x.t() / WIDTH).t() @ x],
    "softmax": [lambda p, x, y, n: softmax(x), lambda p, x, y, n: x.log_softmax(-1).exp()],
    "count": [lambda p, x, y, n: counted_by_copy(p, x)],
    "average": [lambda p, x, y, n: averaged_by_lerp(p, x)],
    "random": [lambda p, x, y, n: torch.rand_like(x) + x],
}
#: Ten kinds of mistakes, each in one step or another.
WRONG: dict[str, list[tuple[str, Step]]] = {
    "a write is dropped": [
        ("count", lambda p, x, y, n: x + p.calls),
        ("average", lambda p, x, y, n: x * 2),
    ],
    "state is taken for constant": [("count", lambda p, x, y, n: counted_from_the_start(p, x))],
    "another state is written": [
        ("count", lambda p, x, y, n: counted_first(p, x)),
        ("average", lambda p, x, y, n: averaged_wrongly(p, x)),
    ],
    "operands change places": [
        ("sub", lambda p, x, y, n: y - x),
        ("product", lambda p, x, y, n: (y @ x.t()) @ x / WIDTH),
        ("layer", lambda p, x, y, n: x @ p.layers[n].weight + p.layers[n].bias),  # type: ignore[operator]
    ],
    "unequal things are merged": [
        ("layer", lambda p, x, y, n: p.layers[(n + 1) % 3](x)),
        ("add", lambda p, x, y, n: x + x),
    ],
    "a small channel next to a large one": [("scale", lambda p, x, y, n: one_channel_off(p, x))],
    "a constant is a little off": [
        ("norm", lambda p, x, y, n: norm(x, eps=1e-2)),
        ("norm", lambda p, x, y, n: norm(x, unbiased=True)),
        ("average", lambda p, x, y, n: averaged(p, x) * 1.0005),
    ],
    "fewer bits": [
        ("layer", lambda p, x, y, n: in_bfloat16(p.layers[n](x))),
        ("product", lambda p, x, y, n: (in_bfloat16(x) @ y.t()) @ x / WIDTH),
    ],
    "wrong for large numbers only": [
        ("relu", lambda p, x, y, n: x.clamp(0, 60)),
        ("softmax", lambda p, x, y, n: x.exp() / x.exp().sum(-1, keepdim=True)),
    ],
    "other random numbers": [
        ("random", lambda p, x, y, n: x + torch.randn_like(x)),
        ("random", lambda p, x, y, n: x + 0.5),
        ("random", lambda p, x, y, n: x + torch.rand_like(x) ** 2),
    ],
}
#: Values alone are right; the gradient is not.
DETACHED: list[tuple[str, Step]] = [
    ("layer", lambda p, x, y, n: F.linear(x, p.layers[n].weight.detach(), p.layers[n].bias)),  # type: ignore[operator,arg-type]
    ("scale", lambda p, x, y, n: x * p.scale.detach()),
]

Line = tuple[str, int, int, int]


class Program(nn.Module):
    """Steps over a growing list of values; every value that no step reads is a result."""

    def __init__(self, parts: Parts, lines: list[Line], place: int, planted: Step | None) -> None:
        super().__init__()
        self.parts, self.lines, self.place, self.planted = parts, lines, place, planted

    def forward(self, x: Tensor) -> Any:
        values, read = [x], set()
        for number, (name, one, other, layer) in enumerate(self.lines):
            step = self.planted if self.planted and number == self.place else STEPS[name]
            first, second = one % len(values), other % len(values)
            read |= {first, second} if name in ("add", "sub", "product") else {first}
            values.append(step(self.parts, values[first], values[second], layer))
        given = [value for number, value in enumerate(values) if number not in read]
        if self.training:
            trained = self.parts.layers[0](x)
            return torch.stack([value.square().mean() for value in (*given, trained)]).sum()
        return {"values": given, "positive": given[-1] > 0, "best": given[-1].argmax(-1)}


NUMBERS = st.integers(0, 7)
LINES = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), NUMBERS, NUMBERS, st.integers(0, 2)), max_size=4)


def programs(
    before: list[Line], line: Line, after: list[Line], planted: Step, seed: int
) -> tuple[Program, Program, Tensor]:
    parts = Parts(seed)
    lines = [*before, line, *after]
    x = torch.randn(ROWS, WIDTH)
    return Program(parts, lines, 0, None), Program(parts, lines, len(before), planted), x


def judged(plain: Program, candidate: Program, x: Tensor, training: bool) -> Any:
    plain.train(training), candidate.train(training)
    return verify(Task(plain, (x,), "cpu", training=training), Compiled(candidate, 0.0, 0.0), 0)


def everything(program: Program, x: Tensor, training: bool, dtype: Any) -> list[Tensor]:
    """Results, gradients, state and random numbers after two calls."""
    program = copy.deepcopy(program).to(dtype).train(training)
    torch.manual_seed(0)
    found: list[Tensor] = []
    for _ in range(2):
        given = program(x.to(dtype))
        if training:
            program.zero_grad()
            given.backward()
            found += [torch.zeros_like(p) if p.grad is None else p.grad for p in program.parameters()]
            given = {"values": [given.detach()]}
        found += [value.detach() for value in given["values"]]
    return [*found, *program.buffers(), torch.get_rng_state()]


def by_channel(value: Tensor) -> Tensor:
    return value.abs().reshape(-1, value.shape[-1] if value.dim() else 1).amax(0)


def differs(plain: Program, candidate: Program, x: Tensor, training: bool) -> bool:
    """Whether a channel is off by a thousandth of itself, on numbers that float32 can still tell apart."""
    for scale in (1.0, 1e4):
        truth, other = (everything(p, x * scale, training, torch.float64) for p in (plain, candidate))
        single = everything(plain, x * scale, training, torch.float32)
        if len(truth) != len(other):
            return True
        for a, b, c in zip(truth, other, single, strict=True):
            if not a.is_floating_point():
                if not torch.equal(a, b):
                    return True
                continue
            off, size, own = (
                (v.abs().reshape(-1, v.shape[-1] if v.dim() else 1)).amax(0) for v in (a - b, a, a - c)
            )
            clear = c.isfinite().reshape(-1, len(off)).all(0) & (own < 1e-5 * size)
            if bool((clear & ~(off < 1e-3 * size)).any()):
                return True
    return False


@st.composite
def plans(draw: Any) -> tuple[list[Line], tuple[int, int, int], list[Line], int, bool, int]:
    """What comes before the planted step, what it reads, what comes behind it, seed, training, which way."""
    reads = (draw(NUMBERS), draw(NUMBERS), draw(st.integers(0, 2)))
    return draw(LINES), reads, draw(LINES), draw(st.integers(0, 99)), draw(st.booleans()), draw(NUMBERS)


@pytest.fixture
def judgments(request: pytest.FixtureRequest) -> Iterator[Counter[str]]:
    """How many of a test's programs were accepted and rejected."""
    found: Counter[str] = Counter()
    yield found
    tell(**{request.node.name.removeprefix("test_"): dict(found)})


@pytest.mark.parametrize("name", sorted(RIGHT))
@DRAWN
@given(plans())
def test_no_right_rewrite_is_rejected(judgments: Counter[str], name: str, plan: Any) -> None:
    before, reads, after, seed, training, which = plan
    ways = RIGHT[name]
    plain, candidate, x = programs(before, (name, *reads), after, ways[which % len(ways)], seed)
    found = judged(plain, candidate, x, training)
    judgments["accepted" if found.ok else "rejected"] += 1
    assert found.ok, found.counterexample


@pytest.mark.parametrize("kind", [*sorted(WRONG), "only the gradient is wrong"])
@DRAWN
@given(plans())
def test_no_wrong_rewrite_is_accepted(judgments: Counter[str], kind: str, plan: Any) -> None:
    before, reads, after, seed, training, which = plan
    ways = WRONG.get(kind, DETACHED)
    training = training or ways is DETACHED
    name, planted = ways[which % len(ways)]
    plain, candidate, x = programs(before, (name, *reads), after, planted, seed)
    assume(differs(plain, candidate, x, training))
    found = judged(plain, candidate, x, training)
    judgments["accepted" if found.ok else "rejected"] += 1
    assert not found.ok
