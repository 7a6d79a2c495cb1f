"""Rules that hold for what real models have and files leave out.

Products and convolutions with their biases.

Each is derived from two rules of TASO (join the filters, join what is added) and stands as text; like every
rule it is proved and tested.
"""

from __future__ import annotations

import functools

from experiments.compilation.planning.substitutions.proof import PROVED
from experiments.compilation.planning.substitutions.rule_text import parse_rule
from experiments.compilation.planning.substitutions.verdicts import RuleVerdict, verdict

_CONV = "conv2d[kernel_h=3,kernel_w=3,stride_h=1,stride_w=1,pad=0]"
_JOINED_CONV = f"ew_add({_CONV}(a, concat[axis=-4](b, c)), concat[axis=-3](d, e))"
_JOINED = "ew_add(matmul(a, concat[axis=-1](b, c)), concat[axis=-1](d, e))"
STANDARD = {
    "linear-siblings": ("matmul(a, b), matmul(a, c) => split[axis=-1](matmul(a, concat[axis=-1](b, c)))"),
    "biased-linear-siblings": (
        f"ew_add(matmul(a, b), d), ew_add(matmul(a, c), e) => split[axis=-1]({_JOINED})"
    ),
    "conv-siblings": f"{_CONV}(a, b), {_CONV}(a, c) => split[axis=-3]({_CONV}(a, concat[axis=-4](b, c)))",
    "biased-conv-siblings": (
        f"ew_add({_CONV}(a, b), d), ew_add({_CONV}(a, c), e) => split[axis=-3]({_JOINED_CONV})"
    ),
    "biased-conv-relu-siblings": (
        f"relu(ew_add({_CONV}(a, b), d)), relu(ew_add({_CONV}(a, c), e)) => "
        f"split[axis=-3](relu({_JOINED_CONV}))"
    ),
}


@functools.cache
def standard_verdicts(prove: bool = False) -> tuple[RuleVerdict, ...]:
    """Return the rules tested, and with ``prove`` proved too."""
    found = [parse_rule(text, name) for name, text in STANDARD.items()]
    judged = tuple(verdict(rule) if prove else verdict(rule, None) for rule in found)
    assert all(one.usable and (not prove or one.proof == PROVED) for one in judged)
    return judged
