"""Counts what a rank hands to its backend, whoever asks for it: our slots, DDP, FSDP2 or DTensor.

All of them go through torch's dispatcher, under gloo, NCCL and the fake backend alike, on real and on fake
tensors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

#: For each operator of the two namespaces: the kind, and the argument (or -1, the result) that is the whole
#: vector.
RESULT = -1
C10D = {
    "allreduce_": ("all_reduce", 0),
    "allreduce_coalesced_": ("all_reduce", 0),
    "broadcast_": ("broadcast", 0),
    "send": ("send", 0),
    "_allgather_base_": ("all_gather", 0),
    "allgather_": ("all_gather", 0),
    "allgather_into_tensor_coalesced_": ("all_gather", 0),
    "_reduce_scatter_base_": ("reduce_scatter", 1),
    "reduce_scatter_": ("reduce_scatter", 1),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", 1),
    "alltoall_": ("all_to_all", 1),
    "alltoall_base_": ("all_to_all", 1),
}
FUNCTIONAL = {
    "all_reduce": ("all_reduce", 0),
    "all_reduce_": ("all_reduce", 0),
    "all_reduce_coalesced": ("all_reduce", 0),
    "all_gather_into_tensor": ("all_gather", RESULT),
    "all_gather_into_tensor_coalesced": ("all_gather", RESULT),
    "reduce_scatter_tensor": ("reduce_scatter", 0),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter", 0),
    "all_to_all_single": ("all_to_all", 0),
    "broadcast": ("broadcast", 0),
}
KINDS: Mapping[str, Mapping[str, tuple[str, int]]] = {"c10d": C10D, "_c10d_functional": FUNCTIONAL}


class HandoverCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """``bytes`` by kind, of what was handed over while this was active; ``calls`` likewise.

    Of a collective the whole vector counts: what a rank holds before an all-reduce or reduce-scatter and
    after an all-gather. A message counts where it is sent.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # a DTensor's operator comes back as those on its shards
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if (known := KINDS.get(func.namespace, {}).get(name)) is not None:
            kind, place = known
            self.bytes[kind] += sum(map(_size, _tensors(result if place == RESULT else args[place])))
            self.calls[kind] += 1
        return result


def _tensors(value: Any) -> Iterable[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
