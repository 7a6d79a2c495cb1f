"""Products that may become one: their rules, their form, the joined product and its split.

Rules are spelled and judged as the compilation family does: an exact test in integers on shapes that the
source accepts (``compilation.planning.substitutions.verdicts``).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

from experiments.compilation.planning.substitutions.rule_text import parse_rule
from experiments.compilation.planning.substitutions.verdicts import verdict
from experiments.workloads.einsum import Operand, Operator

#: What a product may have inside its kernel.
ACTIVATION = "relu"
SPLIT = "split"
_POINT = "conv2d[kernel_h=1,kernel_w=1,stride_h=1,stride_w=1,pad=0]"
#: Of each kind of product: how it is spelled, how its weights are joined, and the axis of its columns.
PRODUCTS = {
    "einsum": ("matmul(a, {})", "concat[axis=-1](b, c)", -1),
    "convolution": (_POINT + "(a, {})", "concat[axis=-4](b, c)", -3),
}


@functools.cache
def sibling_rule(kind: str, biased: bool, activated: bool) -> str:
    """Return the rule by which two such products become one, as text."""
    product, weights, axis = PRODUCTS[kind]

    def side(weight: str, bias: str) -> str:
        text = product.format(weight)
        text = f"ew_add({text}, {bias})" if biased else text
        return f"{ACTIVATION}({text})" if activated else text

    joined = side(weights, f"concat[axis={axis}](d, e)")
    return f"{side('b', 'd')}, {side('c', 'e')} => split[axis={axis}]({joined})"


@functools.cache
def is_usable(kind: str, biased: bool, activated: bool) -> bool:
    """Whether the rule passes the exact test of the compilation family."""
    return verdict(parse_rule(sibling_rule(kind, biased, activated)), None).usable


def product_weight(operator: Operator) -> Operand | None:
    """Return the weight of a plain product: of two dimensions or more, with at most a bias added to it."""
    weights = [operand for operand in operator.parameters if len(operand.dims) > 1]
    others = [operand for operand in operator.parameters if len(operand.dims) <= 1]
    if operator.kind not in PRODUCTS or len(weights) != 1 or len(others) > 1:
        return None
    return weights[0]


def column_of(operator: Operator) -> str:
    """Return the one dimension of the result that only the weight has; nothing where there are others."""
    weight = product_weight(operator)
    read = {name for operand in operator.operands if operand.parameter < 0 for name in operand.dims}
    names = [name for name in operator.output if weight and name in weight.dims]
    return names[0] if len(names) == 1 and names[0] not in read else ""


def joined_product(members: Sequence[Operator], column: str) -> Operator:
    first = members[0]
    columns = sum(member.size[column_of(member)] for member in members)
    sizes = tuple((name, columns if name == column else size) for name, size in first.sizes)
    places = [number for number, operand in enumerate(first.operands) if operand.parameter >= 0]
    operands = list(first.operands)
    for place in places:
        like = [_like(member, first.operands[place]) for member in members]
        operands[place] = replace(first.operands[place], bytes=sum(operand.bytes for operand in like))
    return replace(
        first,
        name="|".join(member.name for member in members),
        sizes=sizes,
        operands=tuple(operands),
        output_bytes=sum(member.output_bytes for member in members),
        stash_bytes=sum(member.stash_bytes for member in members),
        flops=sum(member.flops for member in members),
    )


def _like(member: Operator, operand: Operand) -> Operand:
    """The weight or the bias of a sibling."""
    return next(own for own in member.parameters if (len(own.dims) > 1) == (len(operand.dims) > 1))


def split_part(member: Operator, whole: Operator, column: str, source: int, share: float) -> Operator:
    """What one sibling made, cut out of the joined result."""
    own = column_of(member)
    dims = tuple("" if name == column else name for name in whole.output)
    kept = {name: member.size[name] for name in member.output}
    return Operator(
        name=f"{member.name} of {whole.name}",
        kind=SPLIT,
        layer=member.layer,
        sizes=tuple(kept.items()),
        output=member.output,
        operands=(Operand(dims, member.output_bytes, source),),
        output_bytes=member.output_bytes,
        share=share,
        whole=(own,),
        function=SPLIT,
    )
