"""Element-wise ops as parts of the kernels that make their inputs: Rammer's fusion before scheduling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from experiments.compilation.interface.blocks import DividedAxis, OperatorWork

#: Ops that compute each output element from the inputs' elements at its place (or a broadcast one).
_ELEMENTWISE = """
add sub mul div neg exp log sqrt rsqrt pow tanh sigmoid relu relu6 hardtanh gelu silu leaky_relu elu hardswish
clamp maximum minimum where abs _to_copy clone native_batch_norm _native_batch_norm_legit_no_training
"""
ELEMENTWISE = frozenset(f"aten.{name}{place}" for name in _ELEMENTWISE.split() for place in ("", "_"))


def is_elementwise(work: OperatorWork) -> bool:
    return work.target.rsplit(".", 1)[0] in ELEMENTWISE


def fuse(works: Sequence[OperatorWork]) -> list[OperatorWork]:
    """Element-wise ops computed by the kernel that makes their input, where nothing else reads it.

    A kernel holds at most one op that is not element-wise. What passes between two fused ops is neither
    written nor read. A maker moves to its only reader, so the graph stays free of cycles and in execution
    order.
    """
    readers = Counter(name for work in works for name in work.reads)
    kernels: dict[str, OperatorWork] = {}
    moved: dict[str, str] = {}
    for work in works:
        kernel = work
        for name in work.reads:
            maker = kernels[_now(name, moved)]
            if readers[name] == 1 and is_elementwise(work) and _fits(maker, kernel):
                kernel = _joined(maker, kernel)
                del kernels[maker.name]
                moved[maker.name] = work.name
        reads = dict.fromkeys(_now(name, moved) for name in kernel.reads)
        kernels[work.name] = replace(kernel, reads=tuple(name for name in reads if name != work.name))
    return list(kernels.values())


def _now(name: str, moved: Mapping[str, str]) -> str:
    """Return the kernel that an op has become part of."""
    while name in moved:
        name = moved[name]
    return name


def _fits(maker: OperatorWork, reader: OperatorWork) -> bool:
    return maker.elements == reader.elements and (is_elementwise(maker) or is_elementwise(reader))


def _joined(maker: OperatorWork, reader: OperatorWork) -> OperatorWork:
    """One kernel of both; ``target`` is the one that is not element-wise, where there is one."""
    return OperatorWork(
        reader.name,
        reader.target if is_elementwise(maker) else maker.target,
        maker.flops + reader.flops,
        max(maker.bytes + reader.bytes - 2 * maker.made, 0.0),
        reader.elements,
        reader.made,
        (*maker.reads, *reader.reads),
        maker.parts + reader.parts,
        maker.members + reader.members,
        _common_axes(maker, reader),
    )


def _common_axes(maker: OperatorWork, reader: OperatorWork) -> tuple[DividedAxis, ...] | None:
    """Return the axes along which a part of the reader needs that part of the maker and no more."""
    if maker.axes is None or reader.axes is None:
        return None
    makers = {axis.axis: axis for axis in maker.axes}
    return tuple(
        replace(axis, along=tuple(dict.fromkeys((*makers[axis.axis].along, *axis.along))))
        for axis in reader.axes
        if maker.name in axis.along and axis.axis in makers and makers[axis.axis].extent == axis.extent
    )
