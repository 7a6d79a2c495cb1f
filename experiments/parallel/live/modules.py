"""A plan over a transformer's operators as one over the modules that torch has for them.

Planners of transformers count operators (``transformer_rows``): norms, products, attention cores, residuals.
A module of the real model has several of them: a block all of its own, an embedding table and learned
positions share a row. The blocks are the list of modules of that length, whoever built the model; what holds
parameters before it is the embedding, behind it the last norm and the logits.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from experiments.core.errors import BadInput
from experiments.models.build import build
from experiments.parallel.interface import ParallelPlan, Sharding, Stage
from experiments.parallel.live.job import Job
from experiments.parallel.live.micro_batch_graph import LOSS, unwrapped
from experiments.workloads.layers import LayerGraph
from experiments.workloads.model import ModelSource

EMBEDDING, NORM, LOGITS = "embedding", "norm", "logits"


def over_modules(job: Job, module: nn.Module) -> Job:
    """``job`` with a plan whose layers are modules; as it is where they are already.

    ``BadInput`` says what no module does.
    """
    operators = list(filter(_in_block, job.layers))
    blocks = dict.fromkeys(map(group_of, operators))
    if len(blocks) == len(operators):
        return job
    modules = modules_of(module, list(blocks))
    return replace(job, plan=_Translation(job, modules).plan(), layers=_flat(modules))


def group_of(row: str) -> str:
    """``blocks.3.norm1`` belongs to ``blocks.3``; what is in no block stands for itself."""
    return ".".join(row.split(".")[:2])


def units(rows: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """The rows (first to last exclusive) of each module that torch shards by itself, the last first."""
    operators = list(filter(_in_block, rows))
    whole = len(set(map(group_of, operators))) == len(operators)
    groups = itertools.groupby(range(len(rows)), lambda row: rows[row] if whole else group_of(rows[row]))
    bounds = [(members[0], members[-1] + 1) for members in (list(group) for _, group in groups)]
    return tuple(reversed(bounds))


def _in_block(row: str) -> bool:
    return row.startswith("blocks.")


def _flat(modules: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(name for names in modules.values() for name in names)


def modules_of(module: nn.Module, blocks: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """For each group of rows the paths of its modules, in the order of the forward pass."""
    path = _stack(module, len(blocks))
    leaves = [
        (name, part)
        for name, part in module.named_modules()
        if not any(part.children()) and not name.startswith(path + ".")
    ]
    order = list(dict(module.named_modules()))
    before: list[str] = []
    behind: dict[str, list[str]] = {NORM: [], LOGITS: []}
    for name, part in leaves:
        if order.index(name) < order.index(path) or not any(True for _ in part.parameters()):
            before.append(unwrapped(name))
        else:
            behind[LOGITS if isinstance(part, nn.Linear) else NORM].append(unwrapped(name))
    return {
        EMBEDDING: tuple(before),
        **{name: (unwrapped(f"{path}.{number}"),) for number, name in enumerate(blocks)},
        NORM: tuple(behind[NORM]),
        LOGITS: tuple(behind[LOGITS]),
        LOSS: (LOSS,),
    }


def operator_times(rows: LayerGraph, measured: LayerGraph, source: ModelSource) -> LayerGraph:
    """``rows`` with the measured times of their modules.

    A module's time is divided among its rows in proportion to their closed form.
    """
    with torch.device("meta"):
        module = build(source, weights=False).module
    modules = modules_of(module, list(dict.fromkeys(filter(_in_block, map(group_of, rows.layer)))))
    place = {name: group for group, names in modules.items() for name in names}
    columns = {}
    for column in ("forward_seconds", "backward_seconds"):
        known, total = getattr(rows, column), dict.fromkeys(modules, 0.0)
        for name, seconds in zip(measured.layer, getattr(measured, column), strict=True):
            total[place.get(name.partition("@")[0], LOSS)] += float(seconds)
        closed = dict.fromkeys(modules, 0.0)
        for name, seconds in zip(rows.layer, known, strict=True):
            closed[group_of(name)] += float(seconds)
        share = [total[group_of(name)] / closed[group_of(name)] for name in rows.layer]
        columns[column] = known * share * rows.batch / measured.batch
    return replace(rows, work=(), **columns)


def _stack(module: nn.Module, count: int) -> str:
    """The path of the list of blocks."""
    for path, part in module.named_modules():
        if isinstance(part, nn.ModuleList) and len(part) == count:
            return str(path)
    raise BadInput(f"has no list of {count} blocks", type(module).__name__, "a decoder-only transformer")


@dataclass(frozen=True)
class _Translation:
    job: Job
    modules: Mapping[str, tuple[str, ...]]

    def plan(self) -> ParallelPlan:
        plan = self.job.plan
        self._refuse()
        return replace(
            plan,
            stages=tuple(Stage(*self._bounds(stage), stage.workers) for stage in plan.stages),
            recompute=self._whole(plan.recompute),
            checkpoints=self._first(plan.checkpoints),
            shardings=tuple(self._shardings()),
        )

    def _refuse(self) -> None:
        plan = self.job.plan
        partly = {group_of(self.job.layers[layer]) for layer in plan.recompute} - self._recomputed_groups(
            plan.recompute
        )
        only = {
            "sequences that several devices share (context parallelism)": plan.context > 1,
            "experts that several devices share": plan.expert_parts > 1,
            "operators of a block that are computed again alone": bool(partly or plan.saved),
        }
        for what, present in only.items():
            if present:
                raise BadInput(f"the plan has {what}", "spec.mode", "simulated")

    # --- layers ---------------------------------------------------------------------------------------------

    def _start(self, row: int) -> int:
        """The first module of the group of ``row``; one behind the last is one behind all modules."""
        if row == len(self.job.layers):
            return len(_flat(self.modules))
        wanted, place = group_of(self.job.layers[row]), 0
        for name, modules in self.modules.items():
            if name == wanted:
                return place
            place += len(modules)
        raise BadInput(f"no module does {wanted}", "the model", ", ".join(self.modules))

    def _bounds(self, stage: Stage) -> tuple[int, int]:
        return self._start(stage.begin), self._start(stage.end)

    def _recomputed_groups(self, rows: Sequence[int]) -> set[str]:
        """Groups all of whose rows are computed again."""
        missing = {group_of(name) for row, name in enumerate(self.job.layers) if row not in set(rows)}
        return set(self.modules) - missing

    def _whole(self, rows: Sequence[int]) -> tuple[int, ...]:
        again = self._recomputed_groups(rows)
        names = [name for name, modules in self.modules.items() for _ in modules]
        return tuple(place for place, name in enumerate(names) if name in again)

    def _first(self, rows: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted({self._start(row) for row in rows}))

    # --- shardings ------------------------------------------------------------------------------------------

    def _shardings(self) -> list[Sharding]:
        """Those of a group's rows as one, on the first of its modules; what nobody divides has none."""
        rows: dict[str, list[Sharding]] = {}
        for sharding in self.job.plan.shardings:
            rows.setdefault(group_of(self.job.layers[sharding.layer]), []).append(sharding)
        found = [self._together(group) for group in rows.values()]
        return [one for one in found if max(one.compute, one.parameters) > 1]

    def _together(self, rows: list[Sharding]) -> Sharding:
        first = rows[0]
        layer = self._start(first.layer)
        if len(rows) == 1:
            return replace(first, layer=layer)
        forward, backward = (
            tuple(one for row in rows for one in getattr(row, which)) for which in ("forward", "backward")
        )
        degree = max(row.compute for row in rows)
        return Sharding(layer, "heads", degree, degree, degree, forward, backward)
