"""What the operators obey, stated as rules.

Every proof starts here, and every statement is tested like any rule.

A statement is a template in the rules' text: ``$x`` and ``$y`` stand for two different axes, ``$conv``,
``$small``, ``$large`` and ``$pool`` for parameters. Those of convolutions hold for convolutions of one group,
or of equal groups, only; the proof leaves that out, as TASO's does (SOSP'19, section 4), which is why no rule
is trusted for being proved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product

from experiments.compilation.planning.substitutions.canonical import SAME
from experiments.compilation.planning.substitutions.rule_text import parse_rule
from experiments.compilation.planning.substitutions.testing import EQUAL_GROUPS, UNGROUPED
from experiments.workloads.substitutions import Operator, Substitution

Parameters = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Axiom:
    """``template`` and the guard on groups under which it holds."""

    template: str
    guard: str = ""


AXIOMS = (
    Axiom("ew_add(a, b) => ew_add(b, a)"),
    Axiom("ew_add(a, ew_add(b, c)) => ew_add(ew_add(a, b), c)"),
    Axiom("ew_mul(a, b) => ew_mul(b, a)"),
    Axiom("ew_mul(a, ew_mul(b, c)) => ew_mul(ew_mul(a, b), c)"),
    Axiom("ew_mul(ew_add(a, b), c) => ew_add(ew_mul(a, c), ew_mul(b, c))"),
    Axiom("relu(relu(a)) => relu(a)"),
    Axiom("matmul(a, matmul(b, c)) => matmul(matmul(a, b), c)"),
    Axiom("matmul(a, ew_add(b, c)) => ew_add(matmul(a, b), matmul(a, c))"),
    Axiom("matmul(ew_add(a, b), c) => ew_add(matmul(a, c), matmul(b, c))"),
    Axiom("transpose(transpose(a)) => a"),
    Axiom("transpose(matmul(a, b)) => matmul(transpose(b), transpose(a))"),
    Axiom("transpose(ew_add(a, b)) => ew_add(transpose(a), transpose(b))"),
    Axiom("transpose(ew_mul(a, b)) => ew_mul(transpose(a), transpose(b))"),
    Axiom("transpose(relu(a)) => relu(transpose(a))"),
    Axiom("transpose(concat[axis=-1](a, b)) => concat[axis=-2](transpose(a), transpose(b))"),
    Axiom("transpose(concat[axis=-2](a, b)) => concat[axis=-1](transpose(a), transpose(b))"),
    Axiom("transpose(concat[axis=-3](a, b)) => concat[axis=-3](transpose(a), transpose(b))"),
    Axiom("concat[axis=-1](matmul(a, b), matmul(a, c)) => matmul(a, concat[axis=-1](b, c))"),
    Axiom("concat[axis=-2](matmul(a, c), matmul(b, c)) => matmul(concat[axis=-2](a, b), c)"),
    Axiom(
        "concat[axis=-3](matmul(a, b), matmul(c, d)) => matmul(concat[axis=-3](a, c), concat[axis=-3](b, d))"
    ),
    Axiom("ew_add(matmul(a, b), matmul(c, d)) => matmul(concat[axis=-1](a, c), concat[axis=-2](b, d))"),
    Axiom(
        "concat[axis=$x](ew_add(a, b), ew_add(c, d)) => ew_add(concat[axis=$x](a, c), concat[axis=$x](b, d))"
    ),
    Axiom(
        "concat[axis=$x](ew_mul(a, b), ew_mul(c, d)) => ew_mul(concat[axis=$x](a, c), concat[axis=$x](b, d))"
    ),
    Axiom("concat[axis=$x](relu(a), relu(b)) => relu(concat[axis=$x](a, b))"),
    Axiom(
        "concat[axis=$x](concat[axis=$y](a, b), concat[axis=$y](c, d)) => "
        "concat[axis=$y](concat[axis=$x](a, c), concat[axis=$x](b, d))"
    ),
    Axiom("split[axis=$x](concat[axis=$x](a, b)).0 => a"),
    Axiom("split[axis=$x](concat[axis=$x](a, b)).1 => b"),
    Axiom("conv2d[$conv](ew_add(a, b), c) => ew_add(conv2d[$conv](a, c), conv2d[$conv](b, c))"),
    Axiom("conv2d[$conv](a, ew_add(b, c)) => ew_add(conv2d[$conv](a, b), conv2d[$conv](a, c))"),
    Axiom(
        "concat[axis=-4](conv2d[$conv](a, c), conv2d[$conv](b, c)) => conv2d[$conv](concat[axis=-4](a, b), c)"
    ),
    Axiom(
        "concat[axis=-3](conv2d[$conv](a, b), conv2d[$conv](a, c)) => conv2d[$conv](a, concat[axis=-4](b, "
        "c))",
        UNGROUPED,
    ),
    Axiom(
        "ew_add(conv2d[$conv](a, b), conv2d[$conv](c, d)) => "
        "conv2d[$conv](concat[axis=-3](a, c), concat[axis=-3](b, d))",
        UNGROUPED,
    ),
    Axiom(
        "concat[axis=-3](conv2d[$conv](a, b), conv2d[$conv](c, d)) => "
        "conv2d[$conv](concat[axis=-3](a, c), concat[axis=-4](b, d))",
        EQUAL_GROUPS,
    ),
    Axiom("conv2d[$small](a, b) => conv2d[$large](a, enlarge[$size](b))"),
    Axiom("enlarge[$size](ew_add(a, b)) => ew_add(enlarge[$size](a), enlarge[$size](b))"),
    Axiom("enlarge[$size](concat[axis=-4](a, b)) => concat[axis=-4](enlarge[$size](a), enlarge[$size](b))"),
    Axiom("enlarge[$size](concat[axis=-3](a, b)) => concat[axis=-3](enlarge[$size](a), enlarge[$size](b))"),
    Axiom("pool2d_avg[$pool](ew_add(a, b)) => ew_add(pool2d_avg[$pool](a), pool2d_avg[$pool](b))"),
    Axiom(
        "concat[axis=-3](pool2d_avg[$pool](a), pool2d_avg[$pool](b)) => "
        "pool2d_avg[$pool](concat[axis=-3](a, b))"
    ),
    Axiom(
        "concat[axis=-4](pool2d_avg[$pool](a), pool2d_avg[$pool](b)) => "
        "pool2d_avg[$pool](concat[axis=-4](a, b))"
    ),
    Axiom(
        "concat[axis=-3](pool2d_max[$pool](a), pool2d_max[$pool](b)) => "
        "pool2d_max[$pool](concat[axis=-3](a, b))"
    ),
    Axiom(
        "concat[axis=-4](pool2d_max[$pool](a), pool2d_max[$pool](b)) => "
        "pool2d_max[$pool](concat[axis=-4](a, b))"
    ),
    Axiom("relu(pool2d_max[$pool](a)) => pool2d_max[$pool](relu(a))"),
)


@dataclass(frozen=True)
class Setting:
    """Axes and parameters that the statements are made for."""

    axes: tuple[int, ...]
    convolutions: tuple[Parameters, ...] = ()
    pools: tuple[Parameters, ...] = ()
    sizes: tuple[Parameters, ...] = ()


def setting_of(operators: Sequence[Operator]) -> Setting:
    """What occurs in ``operators``."""

    def parameters(*kinds: str) -> tuple[Parameters, ...]:
        return tuple(dict.fromkeys(op.parameters for op in operators if op.kind in kinds))

    axes = {op.parameter("axis") for op in operators if op.kind in ("concat", "split")}
    mirrored = (
        {-3 - axis for axis in axes if axis > -3}
        if any(op.kind in ("transpose", "matmul") for op in operators)
        else set()
    )
    images = {-3, -4} if any(op.kind == "conv2d" for op in operators) else set()
    return Setting(
        tuple(sorted(axes | mirrored | images, reverse=True)),
        parameters("conv2d"),
        parameters("pool2d_avg", "pool2d_max"),
        parameters("enlarge"),
    )


def instances(axiom: Axiom, setting: Setting) -> Iterator[Substitution]:
    """Yield the statement for every choice of its axes and parameters."""
    for number, choice in enumerate(_choices(axiom.template, setting)):
        text = axiom.template
        for placeholder, value in choice.items():
            text = text.replace(placeholder, value)
        yield parse_rule(text, f"{axiom.template} #{number}")


def _choices(template: str, setting: Setting) -> Iterator[dict[str, str]]:
    axes: list[dict[str, str]] = [{}]
    if "$y" in template:
        axes = [{"$x": str(x), "$y": str(y)} for x, y in permutations(setting.axes, 2)]
    elif "$x" in template:
        axes = [{"$x": str(x)} for x in setting.axes]
    rest: dict[str, list[dict[str, str]]] = {
        "$conv": [{"$conv": _spell(p)} for p in setting.convolutions],
        "$small": list(_enlargements(setting)),
        "$pool": [{"$pool": _spell(p)} for p in setting.pools],
        "$size": [{"$size": _spell(p)} for p in setting.sizes],
    }
    if "$small" in template:
        del rest["$size"]  # a pair of kernels says it
    lists = [found for placeholder, found in rest.items() if placeholder in template]
    for parts in product(axes, *lists):
        yield {key: value for part in parts for key, value in part.items()}


def _enlargements(setting: Setting) -> Iterator[dict[str, str]]:
    """Pairs of convolutions that differ in their odd kernels only, at stride 1 and the same size."""
    for small, large in permutations(setting.convolutions, 2):
        a, b = dict(small), dict(large)
        sizes = {name: b[name] for name in ("kernel_h", "kernel_w")}
        same = (
            a["stride_h"] == a["stride_w"] == b["stride_h"] == b["stride_w"] == 1
            and a["pad"] == b["pad"] == SAME
        )
        if same and all(a[name] <= size and (size - a[name]) % 2 == 0 for name, size in sizes.items()):
            size = ",".join(f"{name}={value}" for name, value in sizes.items())
            yield {"$small": _spell(small), "$large": _spell(large), "$size": size}


def _spell(parameters: Parameters) -> str:
    return ",".join(f"{name}={value}" for name, value in parameters)
