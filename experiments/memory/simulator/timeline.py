"""A recording as the plain data that a run page and a trace are drawn from; what is left out is counted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from experiments.memory.interface.plan import MemoryPlan
from experiments.memory.simulator.lanes import close_gaps
from experiments.memory.simulator.recorder import Busy, StepRecording
from experiments.memory.simulator.report import TIMELINE, Fullest, Spans, union
from experiments.workloads.step import Step

#: Spans of compute, spans of one cause of stalls, tensors at the peak and tensors of the plan that are kept.
MOST_BUSY, MOST_STALLS, MOST_HELD, MOST_NAMED = 8000, 1000, 40, 2000
#: Digits after the point of a time in seconds.
NANOSECONDS = 9


def timeline(recording: StepRecording, step: Step, plan: MemoryPlan) -> dict[str, Any]:
    """Columns of compute, stalls by cause, the device at its fullest, and the tensors that the plan moves."""
    found = {
        "compute": compute(recording.busy, step),
        "stalls": {cause: _span_rows(spans) for cause, spans in recording.stalls.items()},
        "tensors": _moved_tensors(plan, step),
    }
    if recording.fullest is not None:
        found["fullest"] = fullest(recording.fullest, step)
    return found


def compute(busy: tuple[Busy, ...], step: Step) -> dict[str, Any]:
    """The longest ``MOST_BUSY`` of the ``of`` spans that take time; names and modules once each."""
    kept = [span for span in busy if span[3] > span[2]]
    count = len(kept)
    if count > MOST_BUSY:
        longest = sorted(kept, key=lambda span: span[2] - span[3])[:MOST_BUSY]
        kept = sorted(longest, key=lambda span: span[2])
    tensors, ops = step.tensors, step.ops
    names = [tensors.name[which] if what == "codec" else ops.name[which] for what, which, _, _ in kept]
    modules = ["" if what == "codec" else ops.module[which] for what, which, _, _ in kept]
    known = sorted({*names, *modules})
    number = {text: index for index, text in enumerate(known)}
    return {
        "of": count,
        "what": [what for what, _, _, _ in kept],
        "index": [which for _, which, _, _ in kept],
        "start": [round(start, NANOSECONDS) for _, _, start, _ in kept],
        "end": [round(end, NANOSECONDS) for _, _, _, end in kept],
        "texts": known,
        "name": [number[text] for text in names],
        "module": [number[text] for text in modules],
    }


def _span_rows(spans: Spans) -> list[list[float]]:
    rows = np.round(close_gaps(union(spans), MOST_STALLS), NANOSECONDS)
    listed: list[list[float]] = rows.tolist()
    return listed


def fullest(moment: Fullest, step: Step) -> dict[str, Any]:
    """When the device was fullest, during which op, and the largest tensors there; the rest is added up."""
    ranked = sorted(moment.held.items(), key=lambda item: (-item[1], item[0]))
    rest = ranked[MOST_HELD:]
    return {
        "time": round(moment.time, NANOSECONDS),
        "op": moment.op,
        "name": step.ops.name[moment.op] if 0 <= moment.op < len(step.ops) else "",
        "held": [_tensor(tensor, size, step) for tensor, size in ranked[:MOST_HELD]]
        + _unused_rows(moment.unused),
        "others": {"tensors": len(rest), "bytes": sum(size for _, size in rest)},
        "workspace": moment.scratch,
    }


def _unused_rows(size: int) -> list[dict[str, Any]]:
    """A row for pages that hold nothing which is needed."""
    name = "pages without a tensor that is needed"
    return [{"tensor": None, "name": name, "kind": "", "bytes": size, "module": ""}] if size else []


def _tensor(tensor: int, size: int, step: Step) -> dict[str, Any]:
    uses = step.uses[tensor]
    module = step.ops.module[int(uses[0])] if len(uses) else ""
    kind = TIMELINE[step.tensors.kind[tensor]]
    return {
        "tensor": tensor,
        "name": step.tensors.name[tensor],
        "kind": kind,
        "bytes": size,
        "module": module,
    }


def _moved_tensors(plan: MemoryPlan, step: Step) -> dict[str, dict[str, Any]]:
    """The tensors that moves name, by number, the first ``MOST_NAMED`` of them."""
    moved = _first(getattr(move, "tensor", None) for move in plan.moves)
    return {str(t): _tensor(t, int(step.tensors.bytes[t]), step) for t in moved}


def _first(tensors: Iterable[int | None]) -> list[int]:
    return list(dict.fromkeys(t for t in tensors if t is not None))[:MOST_NAMED]
