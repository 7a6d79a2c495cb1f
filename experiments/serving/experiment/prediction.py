"""What the simulator says of a live run beforehand, by nothing but what was measured of this host.

Near saturation a schedule is not continuous in its times: who comes a moment after a batch has begun waits
for all of it. So the run is simulated by several hosts that this one might be, and each figure is the middle
one of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping

from experiments.core.errors import BadInput
from experiments.core.prediction import Prediction
from experiments.core.units import human
from experiments.serving.experiment.live_engines import LiveBatches, LivePaged
from experiments.serving.interface.pace import Pace
from experiments.serving.interface.step_load import StepPrice
from experiments.serving.simulator import figures

#: The longest run in seconds.
MOST_SECONDS = 1800.0


def predict(
    engine: LivePaged | LiveBatches, hosts: Iterable[tuple[StepPrice, Pace | None]], seed: int
) -> Prediction:
    """Simulate the trace of ``engine`` by the price and the pace of each of ``hosts``.

    Drafts are drawn anew for each.
    ``BadInput`` where it would take longer than ``MOST_SECONDS``.
    """
    found = [foretell(engine, price, seed + turn, pace) for turn, (price, pace) in enumerate(hosts)]
    return Prediction.over(found, statistics.median_low)


def foretell(
    engine: LivePaged | LiveBatches, price: StepPrice, seed: int, pace: Pace | None = None
) -> Mapping[str, float]:
    """Return the figures of one simulation; ``BadInput`` as ``predict``."""
    plan = engine.simulate(engine.trace, price, seed, pace)
    _refuse_long(max((row.end for row in plan.iterations), default=0.0))
    return figures(plan, engine.trace)


def _refuse_long(seconds: float) -> None:
    if seconds > MOST_SECONDS:
        what = f"the trace would take {human(seconds, 's')} here"
        raise BadInput(what, "spec.workload", f"at most {MOST_SECONDS:g} s: a limit, or a smaller model")
