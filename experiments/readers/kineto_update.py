"""The optimizer's part of a step: parameters, their gradients and state, and which update op touches which.

The trace says little about tensors that were there before. What it does say: the gradients that autograd
accumulated are as many and as large as the parameters (without those events: what the backward pass leaves
allocated), and the optimizer's class or its operators tell how many tensors of state each parameter has.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from experiments.readers.kineto_memory import Memory, Storage
from experiments.readers.kineto_ops import ACCUMULATE, Op, Reckoned

#: Tensors of state for each parameter, by class of ``torch.optim``; SGD has one with momentum.
SLOTS = {
    "Adam": 2,
    "AdamW": 2,
    "NAdam": 2,
    "RAdam": 2,
    "Adamax": 2,
    "Adadelta": 2,
    "Adagrad": 1,
    "RMSprop": 1,
}
FACTORIES = ("aten::empty", "aten::rand", "aten::zeros", "aten::ones", "aten::full", "aten::empty_strided")

#: What an operator of an Adam-like update reads, by name and whether it has several arguments of the
#: parameter's size: the parameter, its gradient, its state; and how many temporaries.
ADAPTIVE = {
    ("lerp_", True): ("gs", 0),
    ("addcmul_", True): ("gs", 0),
    ("mul_", False): ("ps", 0),
    ("mul", True): ("s", 1),
    ("sqrt", False): ("s", 0),
    ("div", False): ("", 1),
    ("div_", False): ("", 1),
    ("add_", False): ("", 1),
    ("add_", True): ("gs", 0),
    ("addcdiv_", True): ("ps", 1),
}


@dataclass(frozen=True)
class Group:
    """A parameter with its gradient (when one was seen) and its optimizer state."""

    parameter: Storage
    gradient: Storage | None
    state: tuple[Storage, ...]

    def members(self, letter: str) -> tuple[Storage, ...]:
        """``p``: the parameter, ``g``: its gradient, ``s``: its state."""
        if letter == "g":
            return (self.gradient,) if self.gradient else ()
        return (self.parameter,) if letter == "p" else self.state


@dataclass(frozen=True)
class _Size:
    """What is known of a parameter from its gradient."""

    bytes: int
    shape: tuple[int, ...]
    dtype: str


def groups(reckoned: Reckoned, memory: Memory) -> tuple[Group, ...]:
    """All parameters that got a gradient, in forward order (the reverse of the order of their gradients)."""
    gradients = _left_by_backward(reckoned.ops, memory.storages)
    sizes = [_Size(memory.size_of(a.bytes), a.shape, a.dtype) for a in reckoned.accumulated]
    if not sizes:
        sizes = [_Size(g.bytes, (), _dtype(reckoned.ops[g.born])) for g in gradients]
    by_size: dict[int, list[Storage]] = {}
    for left in gradients:
        by_size.setdefault(left.bytes, []).append(left)
    free = [storage for storage in memory.storages if _was_there(storage, reckoned.ops)]
    slots = _slots(reckoned)
    made = _made_by_update(reckoned.ops, memory.storages, {size.bytes for size in sizes})
    found = []
    for number, size in enumerate(sizes):
        same = by_size.get(size.bytes, [])
        gradient: Storage | None = same.pop(0) if same else None
        if gradient is not None:
            gradient.kind, gradient.name = "gradient", f"gradient {len(sizes) - 1 - number}"
            gradient.shape, gradient.dtype = size.shape, size.dtype
        found.append((size, gradient))
    kept = any(_accumulates_in_place(op) for op in reckoned.ops)
    result = []
    for number, (size, gradient) in enumerate(reversed(found)):
        if gradient is None and kept:
            name = f"gradient {number}, kept from step to step"
            gradient = Storage(size.bytes, -1, None, "buffer", name, size.shape, size.dtype, inferred=True)
        parameter = _claim(free, size, "parameter", f"parameter {number}")
        state = tuple(
            _claim(made or free, size, "optimizer_state", f"state {slot} of parameter {number}")
            for slot in range(slots)
        )
        result.append(Group(parameter, gradient, state))
    return tuple(result)


def _accumulates_in_place(op: Op) -> bool:
    """A gradient that was there before gets another added: gradients are zeroed, not dropped,
    between steps.
    """
    return op.name == "aten::add_" and op.node is not None and op.node.name.endswith(ACCUMULATE)


def _left_by_backward(ops: Sequence[Op], storages: Sequence[Storage]) -> list[Storage]:
    """What backward ops allocated and the last of them found still allocated, in order of birth."""
    backward = [index for index, op in enumerate(ops) if op.phase == "backward"]
    if not backward:
        return []
    last = backward[-1]
    return [
        s
        for s in sorted(storages, key=lambda storage: storage.born)
        if 0 <= s.born <= last
        and ops[s.born].phase == "backward"
        and (s.died is None or s.died > last)
        and s.bytes > 4
    ]


def _dtype(op: Op) -> str:
    return op.arguments[0].dtype if op.arguments else "float32"


def _was_there(storage: Storage, ops: Sequence[Op]) -> bool:
    """Allocated before the step, or made from nothing in it (a model built while profiling), and
    never freed.
    """
    return storage.died is None and (storage.born < 0 or ops[storage.born].name.startswith(FACTORIES))


def _made_by_update(ops: Sequence[Op], storages: Sequence[Storage], sizes: set[int]) -> list[Storage]:
    """State that a first step allocates."""
    return [
        s
        for s in storages
        if s.died is None and s.born >= 0 and ops[s.born].phase == "optimizer" and s.bytes in sizes
    ]


def _claim(free: list[Storage], size: _Size, kind: str, name: str) -> Storage:
    """An allocation of the trace that is this tensor, or a new one that the trace does not show."""
    index = next((i for i, storage in enumerate(free) if storage.bytes == size.bytes), None)
    storage = free.pop(index) if index is not None else Storage(size.bytes, -1, None, inferred=True)
    storage.kind, storage.name, storage.shape, storage.dtype = kind, name, size.shape, size.dtype
    return storage


def _slots(reckoned: Reckoned) -> int:
    """Tensors of state for each parameter, by the optimizer's class or, where unknown, by its operators."""
    if reckoned.optimizer in SLOTS:
        return SLOTS[reckoned.optimizer]
    names = {op.name.removeprefix("aten::").removeprefix("_foreach_") for op in updates(reckoned.ops)}
    if "addcdiv_" in names or any("adam" in name for name in names):
        return 2
    return int("mul_" in names)


def updates(ops: Sequence[Op]) -> list[Op]:
    last = max((index for index, op in enumerate(ops) if op.phase == "backward"), default=len(ops))
    return [op for op in ops[last + 1 :] if op.phase == "optimizer"]


def storages_by_update(ops: Sequence[Op], found: Sequence[Group], memory: Memory) -> dict[int, list[Storage]]:
    """For each update op (by index) what it reads.

    Of the groups of its size, which are updated one after the other by equally many ops, members of the one
    whose turn it is (of a list of tensors: of all), and its scratch.
    """
    by_size: dict[int, list[Group]] = {}
    for group in found:
        by_size.setdefault(group.parameter.bytes, []).append(group)
    scratch: dict[int, list[Storage]] = {size: [] for size in by_size}
    for storage in memory.storages:
        if storage.bytes in scratch and storage.born >= 0 and ops[storage.born].phase == "optimizer":
            scratch[storage.bytes].append(storage)
    result: dict[int, list[Storage]] = {}
    for size, indices in _turns(ops, by_size, memory).items():
        here = by_size[size]
        for turn, index in enumerate(indices):
            mine = here if _is_list(ops[index]) else [here[turn * len(here) // len(indices)]]
            result.setdefault(index, []).extend(_read(index, ops[index], size, mine, scratch[size], memory))
    return result


def _turns(ops: Sequence[Op], sizes: Collection[int], memory: Memory) -> dict[int, list[int]]:
    """The update ops that have an argument of each size."""
    chosen = {id(op) for op in updates(ops)}
    rows: dict[int, list[int]] = {size: [] for size in sizes}
    for index, op in enumerate(ops):
        if id(op) in chosen:
            for size in {memory.size_of(argument.bytes) for argument in op.arguments} & rows.keys():
                rows[size].append(index)
    return rows


def _read(
    index: int, op: Op, size: int, mine: Sequence[Group], scratch: Sequence[Storage], memory: Memory
) -> list[Storage]:
    """Members of the groups by what the operator is known to do; then as many of the latest
    scratch tensors.
    """
    same = [argument for argument in op.arguments if memory.size_of(argument.bytes) == size]
    name = op.name.removeprefix("aten::").removeprefix("_foreach_")
    adaptive = all(len(group.state) > 1 for group in mine)
    reads, temporaries = ADAPTIVE.get((name, len(same) > 1), ("pgs", 0)) if adaptive else ("pgs", 0)
    found = [storage for group in mine for letter in reads for storage in group.members(letter)]
    alive = sorted((s for s in scratch if s.born < index and s.lives_at(index)), key=lambda s: s.born)
    return found + alive[len(alive) - temporaries * len(mine) :] if temporaries else found


def _is_list(op: Op) -> bool:
    positions = [argument.position for argument in op.arguments]
    return len(positions) != len(set(positions)) or "_foreach_" in op.name or "_fused_" in op.name
