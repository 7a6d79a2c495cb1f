"""Which tensors an op reads. The trace names shapes, not tensors, so this is inference, in the order of
certainty:

- a forward op that is known to take weights at some positions reads the next parameter of that size (where
  none got a gradient and nothing else fits: a frozen one);
- a backward op reads what the forward op of its sequence number touched, and the gradient made last;
- any other argument is the living tensor of its size and shape that was touched last;
- what no living tensor fits was there before the step: a parameter of that size, else an input.

Lifetimes do not hang on this: an allocation lives from its birth to its death whatever is found here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from experiments.readers.kineto_memory import Storage
from experiments.readers.kineto_ops import Op
from experiments.readers.kineto_shapes import Argument

#: Positions of weights (then of running statistics) among the arguments of forward ops.
WEIGHTS = {
    "aten::addmm": (0, 2),
    "aten::mm": (1,),
    "aten::mkldnn_convolution": (1, 2),
    "aten::cudnn_convolution": (1,),
    "aten::thnn_conv2d": (1, 3),
    "aten::_slow_conv2d_forward": (1, 3),
    "aten::_conv_depthwise2d": (1, 3),
    "aten::conv_depthwise3d": (1, 3),
    "aten::native_batch_norm": (1, 2),
    "aten::cudnn_batch_norm": (1, 2),
    "aten::native_layer_norm": (2, 3),
    "aten::native_group_norm": (1, 2),
    "aten::_fused_rms_norm": (2,),
    "aten::embedding": (0,),
    "aten::_embedding_bag": (0,),
    "aten::prelu": (1,),
}
STATISTICS = {"aten::native_batch_norm": (3, 4), "aten::cudnn_batch_norm": (3, 4)}
#: Positions whose tensor comes with the batch, even where a living tensor has that size.
FROM_BATCH = {"aten::nll_loss_forward": (1,), "aten::nll_loss2d_forward": (1,)}
#: Scalars that operators wrap are no tensors worth tracking.
SMALLEST = 8
#: How many larger sizes are looked at for the tensor that a slice is taken from.
LOOK_AHEAD = 4


class Resolver:
    """Walks the forward and backward ops in order with ``visit``.

    ``inputs`` collects what was there before.
    """

    def __init__(self, storages: Sequence[Storage], parameters: Sequence[Storage], granule: int) -> None:
        self.granule = granule
        self.parameters: dict[int, list[Storage]] = {}
        for parameter in parameters:
            self.parameters.setdefault(parameter.bytes, []).append(parameter)
        self.taken: dict[int, int] = {}
        self.pool: dict[int, list[Storage]] = {}
        self.of_sequence: dict[int, list[Storage]] = {}
        self.incoming: dict[int, Storage] = {}
        self.frozen: list[Storage] = []
        self.inputs: list[Storage] = []
        self.buffers: list[Storage] = []
        self.born: dict[int, list[Storage]] = {}
        taken = {id(parameter) for parameter in parameters}
        for storage in storages:
            if id(storage) not in taken:
                self.pool.setdefault(storage.bytes, []).append(storage)
                self.born.setdefault(storage.born, []).append(storage)

    def visit(self, index: int, op: Op) -> list[Storage]:
        """The tensors that op ``index`` reads, in the order of its arguments."""
        if op.view:
            return []
        found: list[Storage] = []
        for argument in op.arguments:
            if argument.bytes <= SMALLEST:
                continue
            storage = self._find(index, op, argument, found)
            if storage is not None:
                storage.touch(index, argument.shape, argument.dtype)
                found.append(storage)
        if op.phase == "backward" and op.arguments and op.arguments[0].position == 0 and found:
            self.incoming.setdefault(id(op.node), found[0])
        if op.phase == "forward" and op.sequence >= 0:
            self.of_sequence.setdefault(op.sequence, []).extend([*found, *self.born.get(index, [])])
        return found

    def _find(self, index: int, op: Op, argument: Argument, chosen: Sequence[Storage]) -> Storage | None:
        size = -(-argument.bytes // self.granule) * self.granule
        if op.phase == "forward":
            if argument.position in STATISTICS.get(op.name, ()):
                return self._existing(self.buffers, "buffer", size, argument)
            if argument.position in WEIGHTS.get(op.name, ()) and size in self.parameters:
                return self._next_parameter(size)
            if argument.position in FROM_BATCH.get(op.name, ()):
                return self._existing(self.inputs, "input", size, argument)
        candidates = [
            s for s in self._candidates(index, op, size, argument) if s not in chosen and _fits(s, argument)
        ]
        if candidates:
            return max(candidates, key=lambda storage: self._merit(storage, index, op, argument))
        if op.phase == "forward" and argument.position in WEIGHTS.get(op.name, ()):
            return self._existing(self.frozen, "parameter", size, argument)
        if op.phase == "forward" and any(_fits(p, argument) for p in self.parameters.get(size, ())):
            return self._next_parameter(size)
        known = [s for s in self.inputs if s.bytes == size and s not in chosen and _fits(s, argument)]
        if known or op.phase != "forward" or not argument.dense:
            return known[0] if known else None
        return self._existing(self.inputs, "input", size, argument)

    def _candidates(self, index: int, op: Op, size: int, argument: Argument) -> Iterable[Storage]:
        """Living tensors of this size; for a slice, of the smallest size that holds it and has any."""
        larger = [size] if argument.dense else sorted(key for key in self.pool if key >= size)[:LOOK_AHEAD]
        for key in larger:
            rest = [s for s in self.pool.get(key, ()) if s.died is None or s.died >= index]
            self.pool[key] = rest
            alive = [s for s in rest if s.born < index]
            if alive:
                yield from alive
                break
        if op.phase == "backward":
            yield from (s for s in self.of_sequence.get(op.sequence, ()) if s.inferred and s.bytes == size)

    def _merit(self, storage: Storage, index: int, op: Op, argument: Argument) -> tuple[int, int, int, int]:
        """Larger is likelier."""
        related = self._relation(storage, op, argument) if op.phase == "backward" else 0
        shaped = int(storage.shape in ((), argument.shape))
        dies = storage.died == index
        if op.sums_fan_in and argument.position == 0:
            dies = not dies  # the sum stays
        return related, shaped, int(dies), storage.last

    def _relation(self, storage: Storage, op: Op, argument: Argument) -> int:
        """The first argument of a backward op is the gradient that came in, the others were saved by its
        forward op.
        """
        incoming = self.incoming.get(id(op.node))
        if op.sums_fan_in:
            return int(storage.kind != "activation" and storage is not incoming)
        if argument.position > 0:
            return int(storage in self.of_sequence.get(op.sequence, ()))
        return 2 * int(storage is incoming) if incoming else int(storage.kind != "activation")

    def _next_parameter(self, size: int) -> Storage:
        row = self.parameters[size]
        position = self.taken.get(size, 0)
        self.taken[size] = position + 1
        return row[position % len(row)]

    def _existing(self, group: list[Storage], kind: str, size: int, argument: Argument) -> Storage:
        storage = Storage(size, -1, None, kind, inferred=True)
        storage.name = f"frozen {kind} {len(group)}" if group is self.frozen else f"{kind} {len(group)}"
        storage.shape, storage.dtype = argument.shape, argument.dtype
        group.append(storage)
        return storage


def _fits(storage: Storage, argument: Argument) -> bool:
    return not storage.dtype or storage.dtype == argument.dtype
