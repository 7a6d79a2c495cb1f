"""Rules of different files in one algebra, independent of rank: what is verified, matched and shown.

Axes count from the last (TASO's ``axis 1`` of two dims is -1, FlexFlow's ``axis 1`` of three is -2). An
operator with an activation is two operators. FlexFlow's LINEAR(x, w) is ``matmul(x, transpose(w))``. A
``split`` has two outputs and cuts where the newest concatenation along its axis joined (see ``evaluate``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.core.errors import BadInput
from experiments.workloads.substitutions import PARALLEL, Operand, Operator, Substitution

#: Inputs of each operator of the algebra, and the parameters that its meaning depends on.
ALGEBRA: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "matmul": (2, ()),
    "transpose": (1, ()),
    "ew_add": (2, ()),
    "ew_mul": (2, ()),
    "relu": (1, ()),
    "concat": (2, ("axis",)),
    "split": (1, ("axis",)),
    "conv2d": (2, ("kernel_h", "kernel_w", "stride_h", "stride_w", "pad")),
    "pool2d_max": (1, ("kernel_h", "kernel_w", "stride_h", "stride_w", "pad")),
    "pool2d_avg": (1, ("kernel_h", "kernel_w", "stride_h", "stride_w", "pad")),
    "enlarge": (1, ("kernel_h", "kernel_w")),
}
#: Values of ``pad``: TASO's two, and EXPLICIT + p for p zeros on every side.
SAME, VALID, EXPLICIT = 0, 1, 2
_NO_ACTIVATION, _RELU = 0, 2
#: Ranks that files leave unsaid: FlexFlow's tensors have three dims, TASO's matrices two, its images four.
FLEXFLOW_DIMS = 3


def outputs_of(operator: Operator) -> int:
    return 2 if operator.kind == "split" else 1


def canonical(rule: Substitution) -> Substitution:
    """Return ``rule`` in the algebra; ``BadInput`` says which operator or parameter is outside it."""
    rank = _rank(rule)
    source, mine = _side(rule.source, rank, rule.name)
    target, theirs = _side(rule.target, rank, rule.name)
    outputs = tuple((_moved(a, mine), _moved(b, theirs)) for a, b in rule.outputs)
    return Substitution(rule.name, source, target, outputs)


def _rank(rule: Substitution) -> int:
    """Return dims of the tensors that a rule concatenates or splits; a file's rules never mix ranks."""
    ranks = {
        operator.parameter("numdim")
        for operator in (*rule.source, *rule.target)
        if operator.kind == "concat" and any(name == "numdim" for name, _ in operator.parameters)
    }
    if len(ranks) > 1:
        raise BadInput(f"concatenates tensors of {sorted(ranks)} dims", rule.name, "one rank")
    return ranks.pop() if ranks else 4 if "conv2d" in rule.kinds else FLEXFLOW_DIMS


def _side(
    side: Sequence[Operator], rank: int, where: str
) -> tuple[tuple[Operator, ...], list[tuple[Operand, ...]]]:
    """Return the operators unfolded, and for each old operator its outputs among the new."""
    made: list[Operator] = []
    places: list[tuple[Operand, ...]] = []

    def add(operator: Operator) -> Operand:
        made.append(operator)
        return Operand(len(made) - 1)

    for operator in side:
        inputs = [_moved(operand, places) for operand in operator.inputs]
        kind = operator.kind
        if kind == "linear" and len(inputs) == 2:
            inputs[1] = add(Operator("transpose", (inputs[1],)))
            kind = "matmul"
        last = add(Operator(kind, tuple(inputs), _parameters(operator, kind, rank, where)))
        if operator.parameter("acti", _NO_ACTIVATION) == _RELU:
            last = add(Operator("relu", (last,)))
        places.append(tuple(Operand(last.op, output) for output in range(outputs_of(operator))))
    return tuple(made), places


def _moved(operand: Operand, places: Sequence[tuple[Operand, ...]]) -> Operand:
    if operand.is_variable:
        return operand
    outputs = places[operand.op]
    if operand.output >= len(outputs):
        raise BadInput(f"output {operand.output} of operator {operand.op}", "rule", f"{len(outputs)} outputs")
    return outputs[operand.output]


def _parameters(operator: Operator, kind: str, rank: int, where: str) -> tuple[tuple[str, int], ...]:
    if kind not in ALGEBRA:
        what = "moves data among devices" if kind in PARALLEL else "is not in the algebra"
        raise BadInput(f"{kind} {what}", where, "one of " + ", ".join(ALGEBRA))
    arity, names = ALGEBRA[kind]
    if len(operator.inputs) != arity:
        raise BadInput(f"{kind} of {len(operator.inputs)} inputs", where, f"{arity}")
    if operator.parameter("num_outputs", 2) != 2:
        raise BadInput(f"splits in {operator.parameter('num_outputs')}", where, "2")
    if operator.parameter("acti", _NO_ACTIVATION) not in (_NO_ACTIVATION, _RELU):
        raise BadInput(f"activation {operator.parameter('acti')}", where, "none or relu")
    values = {name: operator.parameter(name) for name in names}
    if values.get("axis", -1) >= 0:
        values["axis"] -= rank
    if values.get("axis", -1) >= 0 or values.get("axis", -1) < -8:
        raise BadInput(f"axis {operator.parameter('axis')} of {rank} dims", where, "one of its dims")
    if any(not 1 <= value <= 64 for name, value in values.items() if name not in ("axis", "pad")):
        raise BadInput(f"parameters {values}", where, "kernels, strides and counts of 1 to 64")
    return tuple(values.items())
