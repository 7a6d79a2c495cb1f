"""What is foretold of a live run: the mean over calibrations that the host might have given as well."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.cluster.experiment.prediction import predict
from experiments.cluster.interface import ClusterPolicy, Machine, Machines
from experiments.cluster.live import (
    Calibration,
    MeasuredBatches,
    Slots,
    calibrate,
    calibrate_batches,
    training_jobs,
)
from experiments.cluster.live.batch_calibration import Sweep
from experiments.cluster.live.calibration import Timed, spread
from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.prediction import Prediction
from experiments.core.progress import silent
from tests.experiments.cluster.traces import jobs

STEP = 0.01
ONE_SLOT = Machines([Machine("here", 1)])
KNOWN = Calibration({("mlp", 1): STEP, ("cnn", 1): STEP}, 0.0, 0.0)


def foretell(calibration: Calibration, *of: tuple[float, int, float], policy: str = "srtf") -> Prediction:
    """Two models that are as fast by the calibration, one job after the other."""
    trace = replace(jobs(*of), model=tuple(("mlp", "cnn")[job % 2] for job in range(len(of))))
    made = training_jobs(trace, lambda model, size, share: STEP / share)
    scheduler = registry.create("cluster", policy, {})
    assert isinstance(scheduler, ClusterPolicy)
    return predict(made, ONE_SLOT, scheduler, calibration, seed=0, draws=200)


def test_where_gangs_are_alike_all_simulations_are_one() -> None:
    found = foretell(KNOWN, (0, 1, 4), (1, 1, 2))
    assert found.middle["avg_jct"] == found.low["avg_jct"] == found.high["avg_jct"] == pytest.approx(4)


def test_where_two_jobs_are_nearly_equal_either_may_go_first() -> None:
    """At 6 s the first has 4 s left and the second takes 3.98 s: it goes first, by the calibration as it is.
    Steps that are 2 % apart decide otherwise as often.
    """
    of = ((0.0, 1, 10.0), (6.0, 1, 3.98))
    assert foretell(KNOWN, *of).middle["preemptions"] == 1
    found = foretell(replace(KNOWN, step_spread=0.02), *of)
    assert (found.low["preemptions"], found.high["preemptions"]) == (0, 1)
    assert 0.4 < found.middle["preemptions"] < 0.6


def test_the_same_seed_foretells_the_same() -> None:
    calibration = replace(KNOWN, step_spread=0.05, start_spread=0.1)
    of = ((0.0, 1, 3.0), (1.0, 1, 2.0), (2.0, 1, 1.0))
    assert foretell(calibration, *of) == foretell(calibration, *of)


def test_draws_are_as_far_apart_as_gangs_were() -> None:
    calibration = Calibration({("mlp", 1): STEP}, 2.0, 0.1, step_spread=0.1, start_spread=0.3)
    rng = np.random.default_rng(1)
    drawn = [calibration.draw(rng) for _ in range(4000)]
    steps = np.log([one.step_seconds["mlp", 1] / STEP for one in drawn])
    starts = np.log([one.start / 2.0 for one in drawn])
    assert (steps.std(), starts.std()) == pytest.approx((0.1, 0.3), rel=0.05)
    assert abs(steps.mean()) < 0.01 and abs(starts.mean()) < 0.03


def test_all_batches_of_a_model_are_drawn_with_its_step() -> None:
    batches = {"mlp": MeasuredBatches({1: ((64, 0.01, 0.0), (256, 0.03, 0.001))}, ())}
    calibration = replace(KNOWN, batches=batches, step_spread=0.2)
    drawn = calibration.draw(np.random.default_rng(2))
    factor = drawn.step_seconds["mlp", 1] / STEP
    assert factor != 1.0
    assert drawn.batches["mlp"].steps[1] == (
        (64, pytest.approx(0.01 * factor), 0.0),
        (256, pytest.approx(0.03 * factor), pytest.approx(0.001 * factor)),
    )


def test_the_spread_is_from_the_mean_of_those_alike() -> None:
    """Off by a tenth each, two of two groups; one that is alone says nothing: sqrt(4 x 0.01 / 2)."""
    assert spread([[0.9, 1.1], [18.0, 22.0], [5.0]]) == pytest.approx(math.sqrt(0.02))
    assert spread([[1.0], [2.0]]) == 0


def test_what_would_take_hours_is_refused_before_anything_runs() -> None:
    with pytest.raises(BadInput, match="would train for 5,000 s"):
        foretell(KNOWN, (0, 1, 5000), policy="fifo")


def test_models_of_one_slot_are_timed_next_to_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once on the first slot and once on the second, where next to "b" a step takes twice as long."""
    asked: list[tuple[list[str], int]] = []

    def time_together(models: list[str], size: int, slots: Slots, *_: object) -> list[tuple[str, Timed]]:
        asked.append((models, size))
        return [
            (model, Timed(2.0, 0.02 if "b" in models and model != "b" else 0.01, 0.1, 0.01))
            for model in models
        ]

    monkeypatch.setattr("experiments.cluster.live.calibration._time_together", time_together)
    wanted = [("a", 1), ("b", 1), ("c", 1), ("c", 2)]
    found = calibrate(wanted, Slots([0, 1]), Path(), 0, silent)
    assert asked == [(["a", "b"], 1), (["b", "c"], 1), (["c", "a"], 1), (["c"], 2)]
    assert found.step_seconds == pytest.approx(
        {("a", 1): 0.015, ("b", 1): 0.01, ("c", 1): 0.015, ("c", 2): 0.01}
    )
    assert found.computing == pytest.approx(dict.fromkeys(wanted, 0.01))
    assert found.step_spread > 0 and found.start_spread == 0


def test_models_whose_batch_changes_are_timed_next_to_one_another_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On the second slot steps take twice as long as on the first: 3 ms in the mean where it was 2."""

    def sweep(models: list[str], *_: object) -> list[tuple[str, Sweep]]:
        at = {"mlp": ((64, 0.002, 0.0), (8, 0.001, 0.0)), "cnn": ((32, 0.01, 0.0), (4, 0.005, 0.0))}
        times = [Timed(0.1, 0.002 * (place + 1), 0.01, 0.002) for place in range(len(models))]
        return [
            (
                model,
                Sweep(
                    [(each, step * (place + 1), sync) for each, step, sync in at[model]],
                    ((0.0, 1.0, 1.0 + place),),
                    times[place],
                ),
            )
            for place, model in enumerate(models)
        ]

    monkeypatch.setattr("experiments.cluster.live.batch_calibration._sweep", sweep)
    found = calibrate_batches([("mlp", 1), ("cnn", 1)], Slots([0, 1]), Path(), 0, silent)
    assert found.batches["mlp"].steps[1] == ((8, 0.0015, 0.0), (64, pytest.approx(0.003), 0.0))
    assert found.step_seconds == pytest.approx({("mlp", 1): 0.003, ("cnn", 1): 0.015})
    assert found.step_spread == pytest.approx(spread([[0.002, 0.004], [0.004, 0.002]]))
