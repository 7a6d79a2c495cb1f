"""Job traces drawn from a seed: Gavel's own."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload
from experiments.sources import jobs_of
from experiments.workloads.generated_jobs import COLUMNS, KINDS, MODELS, generate
from experiments.workloads.jobs import JobTrace
from experiments.workloads.profiles.device_speeds import DeviceSpeeds, SpeedsOfType

#: Every model does two steps a second on every number of V100s.
SPEEDS = DeviceSpeeds(
    "even", {"v100": SpeedsOfType({(m, size): 2.0 for m, _ in MODELS for size in (1, 2, 4, 8)}, {})}, {}
)


def test_a_seed_gives_the_authors_trace() -> None:
    """The fourth jobs of two seeds, as Gavel's generator draws them at a mean of 9,000 s between jobs."""
    single = generate("gavel", 42, 1 / 9000, 10, SPEEDS)
    assert single.model[3] == "Recommendation (batch size 4096)"
    assert single.submit[3] == pytest.approx(9649.757897383955)
    assert single.service[3] == pytest.approx(7686.397734151344)
    several = generate("philly", 7, 1 / 9000, 10, SPEEDS)
    assert (several.model[3], several.gpus[3]) == ("Recommendation (batch size 8192)", 1)
    assert several.submit[3] == pytest.approx(20433.37841768996)
    assert several.service[3] == pytest.approx(9040.295595217889)


def test_shares_and_durations_are_those_of_philly() -> None:
    trace = generate("philly", 0, 0.01, 20_000, SPEEDS)
    sizes, counts = np.unique(trace.gpus, return_counts=True)
    assert sizes.tolist() == [1, 2, 4, 8]
    assert counts / len(trace) == pytest.approx([0.7, 0.1, 0.15, 0.05], abs=0.01)
    minutes = np.log10(trace.service / 60)
    assert (minutes >= 3).mean() == pytest.approx(0.2, abs=0.01)
    assert (minutes.min(), minutes.max()) == pytest.approx((1.5, 4), abs=0.01)
    assert np.diff(trace.submit).mean() == pytest.approx(100, rel=0.05)
    assert (trace.traits["iterations"] == trace.service * 2).all()
    assert (generate("gavel", 0, 0.01, 100, SPEEDS).gpus == 1).all()


def test_limit_rate_and_window(shared_data: Path) -> None:
    extra = str(shared_data / "cluster/gavel/simulation_throughputs.json.gz")

    def made(**options: object) -> object:
        return jobs_of(Workload("generated:gavel", options=WorkloadOptions(extra=extra, **options)), 3)[0]  # type: ignore[arg-type]

    trace = made(limit=50, rate=0.1)
    assert (len(trace), trace.window) == (50, None)  # type: ignore[arg-type, attr-defined]
    assert math.isclose(trace.submit[1] * 10, made(limit=2, rate=1.0).submit[1] * 100)  # type: ignore[attr-defined]
    windowed = made(window="10:30")
    assert (len(windowed), windowed.window) == (60, (10, 30))  # type: ignore[arg-type, attr-defined]


def test_without_a_table_models_run_as_fast_as_in_gavels_own(shared_data: Path) -> None:
    """What the package brings are the speeds of jobs that share no devices, digit by digit."""
    extra = str(shared_data / "cluster/gavel/simulation_throughputs.json.gz")
    full = jobs_of(Workload("generated:philly", options=WorkloadOptions(extra=extra)), 3)[0]
    brought = jobs_of(Workload("generated:philly"), 3)[0]
    assert (brought.traits["iterations"] == full.traits["iterations"]).all()
    for kind, speeds in full.profiles.compact.items():
        assert brought.profiles.compact[kind].alone == speeds.alone
        assert brought.profiles.spread[kind].alone == full.profiles.spread[kind].alone


def test_another_kind_is_refused() -> None:
    with pytest.raises(BadInput, match="'x' is not generated"):
        jobs_of(Workload("generated:x"))


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(
        BadInput, match=r"'x' is not generated.*gavel or philly or annotated or elastic or exponential"
    ):
        generate("x", 0, 1.0, 1, SPEEDS)


def draw_annotated(count: int = 20_000, seed: int = 0) -> JobTrace:
    return generate("annotated", seed, 0.01, count, SPEEDS)


def test_annotated_jobs_are_phillys_with_what_users_ask() -> None:
    """Half are guaranteed and have a deadline, a third of them each; the others run when they may."""
    plain, trace = generate("philly", 0, 0.01, 20_000, SPEEDS), draw_annotated()
    assert (trace.submit == plain.submit).all() and (trace.service == plain.service).all()
    assert (trace.gpus == plain.gpus).all() and trace.profiles is None
    sure = np.array(trace.traits["class"]) == "guaranteed"
    assert sure.mean() == pytest.approx(0.5, abs=0.02)
    assert (sure == ~np.isnan(trace.deadline)).all()
    slack = ((trace.deadline - trace.submit) / trace.service)[sure].round(6)
    values, counts = np.unique(slack, return_counts=True)
    assert values.tolist() == [1.2, 2.0, 10.0]
    assert counts / sure.sum() == pytest.approx([0.33, 0.34, 0.33], abs=0.02)
    assert Counter(trace.tenant).keys() == {"a", "b", "c", "d"}
    assert min(Counter(trace.tenant).values()) > 0.23 * len(trace)


def test_jobs_of_a_model_use_as_much_of_their_devices_however_many_are_drawn() -> None:
    trace, used = draw_annotated(), {}
    for model, part in zip(trace.model, trace.traits["utilization"].tolist(), strict=True):
        assert used.setdefault(model, part) == part
    assert len(set(used.values())) == len(MODELS) and 0 < min(used.values()) < max(used.values()) <= 1
    few = draw_annotated(10)
    assert few.traits["utilization"].tolist() == trace.traits["utilization"][:10].tolist()


def test_elastic_jobs_have_their_speeds_by_number_of_gpus() -> None:
    """An LM of 5 samples is told on four numbers of GPUs, A3C on one; half of the deadlines are too soon."""
    speeds = {
        (model, size): 2.0 * size for model, many in MODELS for size in ((1, 2, 4, 8) if many else (1,))
    }
    table = DeviceSpeeds("even", {"v100": SpeedsOfType(speeds, {})}, {})
    trace = generate("elastic", 0, 0.01, 20_000, table)
    assert trace.profiles.rows["LM (batch size 5)"] == {5: ((1, 2.0), (2, 4.0), (4, 8.0), (8, 16.0))}
    assert trace.profiles.rows["A3C"] == {0: ((1, 2.0),)}
    assert trace.traits["batch"][trace.model.index("LM (batch size 5)")] == 5
    slack = (trace.deadline - trace.submit) / trace.service
    assert (slack.min(), slack.max(), slack.mean()) == pytest.approx((0.5, 1.5, 1.0), abs=0.01)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_the_jobs_of_a_kind_tell_is_named(kind: str) -> None:
    """A scheduler that needs a column names the kinds that have it."""
    assert sorted(COLUMNS[kind]) == sorted(generate(kind, 0, 1e-3, 40, SPEEDS).told()["columns"])


def test_exponential_jobs_leave_nothing_to_learn_from_what_a_job_had() -> None:
    """An hour in the mean and as much in its deviation; an hour is left in the mean whatever went before."""
    trace = generate("exponential", 0, 0.7 / 3600, 50_000, SPEEDS)
    gaps = np.diff(trace.submit)
    assert (trace.service.mean(), trace.service.std()) == pytest.approx((3600, 3600), rel=0.02)
    assert (gaps.mean(), gaps.std()) == pytest.approx((3600 / 0.7, 3600 / 0.7), rel=0.02)
    older = trace.service[trace.service > 7200]
    assert (older - 7200).mean() == pytest.approx(3600, rel=0.03)
    assert set(trace.gpus.tolist()) == {1} and trace.profiles is None
