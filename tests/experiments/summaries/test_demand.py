"""What traces of jobs and requests ask for: numbers that can be counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.core import jsonio
from experiments.summaries import demand, summary
from experiments.summaries.arrivals import arrivals_of, plots_of
from experiments.summaries.demand import demand_of
from experiments.workloads.jobs import JobTrace
from experiments.workloads.ragged import Ragged
from experiments.workloads.requests import RequestTrace


def jobs(*rows: tuple[float, int, float]) -> JobTrace:
    submit, gpus, service = (np.array(column) for column in zip(*rows, strict=True))
    count = len(rows)
    names, none = tuple(map(str, range(count))), ("",) * count
    return JobTrace(
        "t", names, submit.astype(float), gpus, service.astype(float), np.full(count, np.nan), none, none
    )


def requests(arrival: list[float], blocks: list[list[int]] | None = None) -> RequestTrace:
    count = len(arrival)
    prompt, output = np.full(count, 40), np.full(count, 10)
    hashes = Ragged.of(blocks) if blocks is not None else None
    return RequestTrace("t", np.array(arrival), prompt, output, ("",) * count, hashes=hashes, block=16)


def test_demand_is_what_runs_if_nobody_waits() -> None:
    """2 GPUs from 0 to 10, 4 from 5 to 15, 1 from 15 to 20: 2 for 5 s, 6 for 5 s, 4 for 5 s, 1 for 5 s."""
    found = demand_of(jobs((0, 2, 10), (5, 4, 10), (15, 1, 5)))
    assert dict(zip(found["levels"], found["seconds"], strict=True)) == {1: 5, 2: 5, 4: 5, 6: 5}
    assert (found["gpu_seconds"], found["submissions"], found["peak"], found["peak_at"]) == (65, 15, 6, 5)
    longest = zip(found["levels"], found["longest"], found["longest_from"], strict=True)
    assert list(longest) == [(1, 20, 0), (2, 15, 0), (4, 10, 5), (6, 5, 5)]
    assert found["curve"] == {"x": [0, 5, 10, 15, 20], "y": [2, 6, 4, 1, 0], "of": None}
    assert (found["gangs"], found["jobs_by_gang"], found["work_by_gang"]) == (
        [1, 2, 4],
        [1, 1, 1],
        [5, 20, 40],
    )


def test_a_long_curve_keeps_its_peaks_and_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demand, "MOST_POINTS", 20)
    monkeypatch.setattr(demand, "MOST_LEVELS", 8)
    rng = np.random.default_rng(3)
    trace = jobs(*sorted((float(t), int(g), float(s)) for t, g, s in rng.integers(1, 60, (300, 3))))
    found = demand_of(trace)
    assert len(found["curve"]["x"]) == 20
    assert max(found["curve"]["y"]) == found["peak"]
    assert len(found["levels"]) <= 8
    assert sum(found["seconds"]) == pytest.approx(found["span"])


def test_requests_tell_rates_and_bursts() -> None:
    """Four at once every 10 s: in a second 4 or none, in whole windows of 10 s always 4."""
    found = arrivals_of(requests([float(10 * (place // 4)) for place in range(16)]))
    assert found["clock_step"] == 10
    assert found["windows"] == []
    even = arrivals_of(requests([place / 2 for place in range(41)]))
    assert even["gap_variation"] == 0
    assert even["windows"][0] == {"seconds": 1.0, "peak": 2.0, "dispersion": 0.0}
    assert even["prompt"] == {"mean": 40, "quantiles": [40, 40, 40], "most": 40}


def test_a_shared_prefix_is_what_an_earlier_request_had_from_its_first_block_on() -> None:
    """Of 40 tokens two blocks of 16 are full. The second shares both, the third one, the fourth none: its
    second block is known, its first is not. The last use of the third's block is 100 s ago.
    """
    found = arrivals_of(requests([0, 5, 105, 106], [[1, 2], [1, 2], [1, 3], [9, 2]]))["prefix"]
    assert (found["tokens"], found["requests"], found["blocks"]) == (48, 2, 4)
    assert found["share"] == pytest.approx(48 / 160)
    assert found["ages"] == [[10, 0.2], [60, 0.2], [600, 0.3], [3600, 0.3]]
    assert arrivals_of(requests([0, 1]))["prefix"] is None


def test_summaries_of_traces_are_json_even_when_they_are_short() -> None:
    for trace in (jobs((0, 1, 0)), requests([0.0]), requests([0.0, 0.0])):
        jsonio.canonical(summary(trace))
    assert [plot["title"] for plot in plots_of(requests([0.0, 1.0, 3.0]))][-1] == "Gaps between requests"
