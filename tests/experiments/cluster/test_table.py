"""How fast jobs run by ElasticFlow's throughput tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.cluster.interface import Gang, Machines
from experiments.cluster.planning.performance import TableSpeed, performance_of
from experiments.core.errors import BadInput
from experiments.workloads.jobs import JobTrace
from experiments.workloads.profiles.throughput_table import ThroughputTables
from tests.experiments.cluster.profiles.table import profiles_for
from tests.experiments.cluster.traces import jobs

EIGHT = Machines.of_sizes([8])


def model_of(trace: JobTrace) -> TableSpeed:
    found = performance_of(trace, EIGHT)
    assert isinstance(found, TableSpeed)
    return found


#: Job 0 rises to 8 GPUs, job 1 is fastest on 4.
TRACE = profiles_for(jobs((0, 2, 10), (0, 2, 10)), EIGHT)


def speed(job: int, gpus: int) -> tuple[float, float]:
    rate = model_of(TRACE).rate(job, Gang(job, tuple(range(gpus))))
    return rate.speed, rate.busy


def test_work_is_in_steps_and_speed_by_level() -> None:
    assert (model_of(TRACE).unit, model_of(TRACE).work(0)) == ("steps", 10)
    assert [speed(0, gpus)[0] for gpus in (1, 2, 4, 8)] == [1.0, 1.5, 2.0, 2.5]


def test_devices_beyond_a_level_idle() -> None:
    assert speed(0, 3) == (1.5, pytest.approx(2 / 3))


def test_a_table_that_falls_is_capped_at_its_best_count_and_says_so() -> None:
    assert speed(1, 4) == (1.2, 1.0)
    assert speed(1, 8) == (1.2, 0.5)
    assert [model_of(TRACE).largest(job) for job in (0, 1)] == [8, 4]
    (warning,) = model_of(TRACE).describe()["warnings"]
    assert warning == "not monotone: falling with batch 64 is capped at 4 GPUs"


def test_a_level_slower_than_a_smaller_one_is_none() -> None:
    rows = {"steady": {64: ((1, 3.0), (2, 2.0), (4, 4.0), (8, 1.0))}}
    trace = replace(TRACE, model=("steady",) * 2, profiles=ThroughputTables("t", rows))
    assert model_of(trace).levels(0) == ((1, 3.0), (4, 4.0))
    assert len(model_of(trace).measured(0)) == 4


def test_a_model_that_the_table_lacks_names_job_and_model() -> None:
    with pytest.raises(BadInput, match="job 1: table has no model 'vgg'"):
        model_of(replace(TRACE, model=("steady", "vgg")))


def test_a_batch_that_the_table_lacks_names_job_model_and_batch() -> None:
    traits = {**TRACE.traits, "batch": np.array([64, 32])}
    with pytest.raises(BadInput, match="job 1: table has no batch 32 of model falling"):
        model_of(replace(TRACE, traits=traits))


def test_untold_steps_are_those_of_its_time_and_told_as_assumed() -> None:
    untold = model_of(replace(TRACE, traits={}))
    assert untold.work(0) == 10 * 1.5
    assert any("2 jobs of untold steps" in text for text in untold.describe()["assumed"])
    assert any("2 jobs of untold batch" in text for text in untold.describe()["assumed"])


def test_a_count_below_the_smallest_level_is_refused() -> None:
    rows = {"steady": {64: ((2, 1.0),)}}
    trace = replace(TRACE, model=("steady",) * 2, profiles=ThroughputTables("t", rows))
    with pytest.raises(BadInput, match="no throughput of steady with batch 64 on 1 GPUs"):
        model_of(trace).rate(0, Gang(0, (0,)))
