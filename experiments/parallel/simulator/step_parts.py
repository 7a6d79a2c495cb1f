"""Where a step's seconds go, from the ideal step to the achieved one; the parts add up to the step time."""

from __future__ import annotations

from collections.abc import Mapping

#: Every FLOP of the model at the devices' peak; computing beyond that; what devices wait for.
IDEAL, KERNELS = "ideal", "kernels below peak"
EXPOSED, BUBBLE = "exposed communication", "bubble"
RECOMPUTE, UPDATE = "recompute", "optimizer"
NEEDED = ("step_time", "mfu", "hfu", "bubble_fraction", "exposed_communication_time")


def parts_of_step(figures: Mapping[str, float]) -> dict[str, float]:
    """Seconds of a step by part, in the order of a waterfall; empty without a simulated step's ``figures``.

    ``figures`` are metrics by name. All parts are means over devices. A step from before recomputing and the
    optimizer were told apart has recomputing at peak, and its optimizer among the kernels.
    """
    if not figures.keys() >= set(NEEDED):
        return {}
    step, mfu, hfu, bubble, exposed = (figures[name] for name in NEEDED)
    again = figures.get("recompute_time", (hfu - mfu) * step)
    update = figures.get("update_time", 0.0)
    computing = step * (1 - bubble) - exposed
    return {
        IDEAL: mfu * step,
        KERNELS: computing - mfu * step - again - update,
        EXPOSED: exposed,
        BUBBLE: bubble * step,
        RECOMPUTE: again,
        UPDATE: update,
    }
