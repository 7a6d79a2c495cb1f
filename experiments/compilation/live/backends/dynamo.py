"""What TorchDynamo did.

Graphs, calls captured, graph breaks with their source line, recompiles with their guard.

Breaks are those that ``torch._dynamo.explain`` finds on one batch: Dynamo's own counter of breaks misses
jumps that depend on data.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from torch._dynamo import utils
from torch._dynamo.exc import TorchDynamoException
from torch._inductor import metrics

import experiments

ROOT = Path(experiments.__file__).resolve().parent.parent
#: Frames and recompiles that are remembered; torch's default of 64 is fewer than the sizes of a series.
MOST_FRAMES = 4096
#: In front of a guard's text stands which compilation it was of: frame and number ("0/1: ").
_COMPILATION = re.compile(r"^\d+/\d+(_\d+)?: ")


@dataclass(frozen=True)
class Break:
    """Where a graph ended although the function went on.

    File and line of the model's code, the line, the reason.
    """

    where: str
    line: str
    reason: str


@dataclass(frozen=True)
class Recompile:
    """A function compiled again, and the guard of the last compilation that did not hold."""

    function: str
    where: str
    guard: str


@dataclass(frozen=True)
class DynamoCounts:
    """``graphs`` compiled, ``calls`` of ops captured in them, ``recompiles`` of functions compiled before."""

    graphs: int
    calls: int
    recompiles: tuple[Recompile, ...]
    phases: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        return {
            "graphs": self.graphs,
            "captured_calls": self.calls,
            "recompiles": [asdict(row) for row in self.recompiles],
            "compile_phases": self.phases,
        }


def reset() -> None:
    """Forget compiled code and counters: two compilations never share an entry of Dynamo's cache."""
    torch._dynamo.reset()
    utils.counters.clear()
    utils.clear_compilation_metrics()
    utils.set_compilation_metrics_limit(MOST_FRAMES)
    metrics.reset()


def read_counts() -> DynamoCounts:
    """What happened since ``reset``."""
    stats, frames = utils.counters["stats"], utils.get_compilation_metrics()
    again = tuple(
        Recompile(str(frame.co_name), source_line(str(frame.co_filename), frame.co_firstlineno or 0), guard)
        for frame in frames
        if (guard := _guard(frame.recompile_reason))
    )
    return DynamoCounts(int(stats["unique_graphs"]), int(stats["calls_captured"]), again, _phases(frames))


def _guard(reason: str | None) -> str:
    plain = _COMPILATION.sub("", (reason or "").strip()).split("\nUser stack trace")[0]
    return " ".join(plain.split())


def _phases(frames: Sequence[Any]) -> dict[str, float]:
    """Return seconds of all frames: the whole of it, the backend's part, and code generation inside that."""
    names = ("entire_frame_compile_time_s", "backend_compile_time_s", "code_gen_time_s")
    return {
        name.removesuffix("_s"): round(sum(getattr(frame, name, None) or 0.0 for frame in frames), 6)
        for name in names
    }


def breaks(call: Callable[..., Any], inputs: Sequence[Any]) -> tuple[int, tuple[Break, ...]]:
    """Graphs of one call, and what is known of the breaks between them.

    Dynamo alone runs, nothing is generated. Of breaks inside a function that is not traced into after all,
    ``explain`` keeps no record: of those the counter's reasons are reported, without a place.
    """
    reset()
    found = torch._dynamo.explain(call)(*inputs)
    rows = tuple(_break(reason) for reason in found.break_reasons)
    if not rows and found.graph_count > 1:
        rows = tuple(
            Break("", "", " ".join(reason.split())[:500]) for reason in utils.counters["graph_break"]
        )
    reset()
    return found.graph_count, rows


def _break(reason: Any) -> Break:
    text = " ".join(str(reason.reason).split())
    if not reason.user_stack:
        return Break("", "", text[:500])
    frame = reason.user_stack[-1]
    line = frame.line or linecache.getline(frame.filename, frame.lineno)
    return Break(source_line(frame.filename, frame.lineno), line.strip(), text[:500])


def explanation(error: TorchDynamoException) -> str:
    """Return the first line of what Dynamo or a compiler complains about, and the model's line."""
    complaint = " ".join((str(error).strip() or type(error).__name__).splitlines()[0].split())
    stack = getattr(error, "real_stack", None)
    if not stack:
        return complaint
    frame = stack[-1]
    line = frame.line or linecache.getline(frame.filename, frame.lineno)
    return f"{source_line(frame.filename, frame.lineno)} `{line.strip()}`: {complaint}"


def source_line(file: str, line: int) -> str:
    """Return ``experiments/models/gpt.py:42``: below the source tree, or only the file's name elsewhere."""
    path = Path(file)
    inside = path.is_relative_to(ROOT)
    return f"{path.relative_to(ROOT) if inside else path.name}:{line}"


@contextmanager
def limits(graphs: int) -> Iterator[None]:
    """Let a function be compiled ``graphs`` times before Dynamo gives up and runs it eagerly."""
    with torch._dynamo.config.patch(recompile_limit=graphs, accumulated_recompile_limit=4 * graphs):
        yield
