"""Which parts of a model are compiled by themselves: its repeated blocks, and what lies between them.

A block is a module of a list (its path ends in a number) that multiplies more than once and has a twin: with
numbers left out, two of the modules of the same path run the same ops on tensors of the same sizes. Where a
model's lists have no twins of the same sizes (DenseNet's layers grow), the same ops are enough. Of blocks
within blocks the outermost count. A step that does not know its modules, or has no such list, is one region.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from experiments.workloads.step import Step

Signature = tuple[object, ...]


def compiled_regions(step: Step, forward: Sequence[int], is_heavy: Callable[[int], bool]) -> list[list[int]]:
    """Return the ops of ``forward`` by region, in order: each block, and each stretch between two blocks."""
    members = _members(step, forward)
    blocks = {path: ops for path, ops in members.items() if sum(map(is_heavy, ops)) > 1}
    for sizes in (True, False):
        patterns = _find_repeated(step, blocks, sizes)
        if patterns:
            break
    home = {op: _block(step.ops.module[op], blocks, patterns) for op in forward}
    regions: dict[str, list[int]] = {}
    for path, run in itertools.groupby(forward, home.__getitem__):
        ops = list(run)
        regions.setdefault(path or f"before op {ops[0]}", []).extend(ops)
    return sorted(regions.values())


def _members(step: Step, forward: Sequence[int]) -> Mapping[str, list[int]]:
    """The ops of every module of a list, by its path."""
    found: dict[str, list[int]] = defaultdict(list)
    for op in forward:
        for path in _numbered_paths(step.ops.module[op]):
            found[path].append(op)
    return found


def _numbered_paths(module: str) -> list[str]:
    """The paths of ``module`` and its parents that end in a number, the outermost first."""
    names = module.split(".")
    return [".".join(names[: i + 1]) for i, name in enumerate(names) if name.isdigit()]


def _pattern(path: str) -> str:
    return re.sub(r"\d+", "#", path)


def _find_repeated(step: Step, blocks: Mapping[str, list[int]], sizes: bool) -> set[str]:
    """The patterns of paths of which two modules do the same."""
    seen: set[tuple[str, Signature]] = set()
    found = set()
    for path, ops in blocks.items():
        key = (_pattern(path), _signature(step, ops, sizes))
        if key in seen:
            found.add(key[0])
        seen.add(key)
    return found


def _signature(step: Step, ops: Sequence[int], sizes: bool) -> Signature:
    made = [int(step.tensors.bytes[step.outputs[op]].sum()) if sizes else 0 for op in ops]
    return tuple((step.ops.target[op], size) for op, size in zip(ops, made, strict=True))


def _block(module: str, blocks: Mapping[str, list[int]], patterns: set[str]) -> str:
    """The outermost block that ``module`` is part of; empty where there is none."""
    return next(
        (path for path in _numbered_paths(module) if path in blocks and _pattern(path) in patterns), ""
    )
