"""The waterfall of a parallel step: its seconds by part, from the ideal step to the achieved one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from experiments.core.units import human
from experiments.parallel.simulator import step_parts
from experiments.parallel.simulator.step_parts import parts_of_step
from webapp.runs.models import Run

#: Part -> hue of its bar; a plan can change the last four.
HUES = {
    step_parts.IDEAL: "plot-3",
    step_parts.KERNELS: "plot-6",
    step_parts.EXPOSED: "plot-4",
    step_parts.BUBBLE: "plot-8",
    step_parts.RECOMPUTE: "plot-2",
    step_parts.UPDATE: "plot-5",
}
CHANGEABLE = (step_parts.EXPOSED, step_parts.BUBBLE, step_parts.RECOMPUTE)
#: A part below this share of the step is not worth another plan.
WORTH = 0.01
#: Width of the drawing, and the share of a step below which a part is not drawn.
WIDE, NOTHING = 1000, 1e-6


@dataclass(frozen=True)
class Bar:
    """A part: where its bar begins and how long it is of ``WIDE``; ``mfu_left`` once it is paid for."""

    name: str
    hint: str
    hue: str
    seconds: float
    share: float
    mfu_left: float
    begin: str
    width: str


@dataclass(frozen=True)
class Waterfall:
    """``changeable``: the largest part that another plan might lessen; ``faster``: a run that was quicker."""

    bars: tuple[Bar, ...]
    step_time: float
    mfu: float
    changeable: Bar | None
    faster: Run | None
    faster_time: float


def waterfall_of(run: Run, figures: Mapping[str, float], plan: Mapping[str, Any]) -> Waterfall | None:
    """``None`` where the run has not all the figures of a simulated parallel step."""
    parts = parts_of_step(figures)
    step = sum(parts.values())
    if step <= 0:
        return None
    hints = _hints(figures, plan)
    ends = list(accumulate(parts.values()))
    ideal = parts[step_parts.IDEAL]
    bars = [
        Bar(name, hints.get(name, ""), HUES[name], seconds, seconds / step, ideal / end,
            *_place(min(end, end - seconds) / step, abs(seconds) / step))
        for (name, seconds), end in zip(parts.items(), ends, strict=True)
        if abs(seconds) > NOTHING * step
    ]  # fmt: skip
    told = (bar for bar in bars if bar.name in CHANGEABLE and bar.share >= WORTH)
    changeable = max(told, key=_seconds, default=None)
    faster, faster_time = faster_sibling(run, step)
    return Waterfall(tuple(bars), step, ideal / step, changeable, faster, faster_time)


def _seconds(bar: Bar) -> float:
    return bar.seconds


def _place(begin: float, width: float) -> tuple[str, str]:
    """For an attribute: with a point, whatever the language of the page."""
    return f"{WIDE * begin:.2f}", f"{max(1.0, WIDE * width):.2f}"


def _hints(figures: Mapping[str, float], plan: Mapping[str, Any]) -> dict[str, str]:
    layers = plan["stages"][-1]["end"] if plan.get("stages") else 0
    again = len(plan.get("recompute") or ())
    stages = plan.get("stages") or ()
    each = plan.get("micro_batches", 0) // max(1, len(stages[0]["workers"]) if stages else 1)
    sent = human(figures.get("communication_time", 0.0), "s")
    return {
        step_parts.IDEAL: "every FLOP of the model at peak",
        step_parts.KERNELS: "products, attention, what memory bounds, what runs next to collectives",
        step_parts.EXPOSED: f"the device that sends most has {sent} of messages",
        step_parts.BUBBLE: f"{len(stages)} stages, {each} micro-batches through each",
        step_parts.RECOMPUTE: f"{again} of {layers} layers" if again else "",
        step_parts.UPDATE: "reads and writes the model's states",
    }


def faster_sibling(run: Run, step: float) -> tuple[Run | None, float]:
    """The fastest run of the same experiment, workload and hardware that is quicker than ``step`` seconds."""
    if run.experiment_id is None:
        return None, 0.0
    alike = Run.objects.filter(
        experiment_id=run.experiment_id, state=Run.State.SUCCEEDED, family=run.family, mode=run.mode,
        hardware=run.hardware, spec__workload=run.spec.get("workload"),
    ).exclude(pk=run.pk)  # fmt: skip
    timed = alike.filter(metrics__name="step_time", metrics__value__lt=step)
    found = timed.order_by("metrics__value").values_list("pk", "metrics__value").first()
    return (Run.objects.get(pk=found[0]), found[1]) if found else (None, 0.0)
