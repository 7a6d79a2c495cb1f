"""Searches against recorded tables."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.compilation.experiment.replay import Replay, replay_of
from experiments.compilation.experiment.tuning import recorded_curve
from experiments.compilation.interface.tuning import TuningProposal
from experiments.compilation.planning.tuning.random_search import RandomTuner
from experiments.compilation.planning.tuning.session import History, trials_to, tune
from experiments.compilation.policies.ansor import Ansor
from experiments.compilation.policies.autotvm import AutoTvm
from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.progress import silent
from experiments.core.spec import load_spec
from experiments.readers.base import open_file
from experiments.run import run
from experiments.workloads.tuning_log import TuningLog

LOGS = "compilation/autotvm_ansor_logs"


def record(tile: int, seconds: float, error: int = 0, task: str = "dense", unroll: int = 0) -> str:
    config = {"index": 0, "entity": [["tile", "sp", [-1, tile]], ["unroll", "ot", unroll]]}
    given = ["llvm", task, [["TENSOR", [8, 4], "float32"], ["TENSOR", [2, 4], "float32"]], {}]
    return json.dumps(
        {"input": given, "config": config, "result": [[seconds], error, 1.0, 0.0], "version": 0.2}
    )


def log_of(folder: Path, lines: list[str]) -> TuningLog:
    path = folder / "log.json"
    path.write_text("\n".join(lines))
    value: Any = open_file(path, "auto", WorkloadOptions()).reading.value
    assert isinstance(value, TuningLog)
    return value


def searched(policy: Any, replay: Replay, seed: int = 0, trials: int = 10_000) -> History:
    return tune(policy.tuner(replay.tasks, seed), replay.tasks, replay.measure, trials, 1e9, silent)


@pytest.fixture
def hill(tmp_path: Path) -> Replay:
    """200 schedules, a smooth time with its least 0.5 ms at tile 37, odd unrolls fail."""
    rows = [(tile, unroll) for tile in range(1, 101) for unroll in (0, 1)]
    times = {tile: (0.5 + abs(tile - 37) / 10) * 1e-3 for tile in range(1, 101)}
    return replay_of(log_of(tmp_path, [record(t, 1e9 if u else times[t], u, unroll=u) for t, u in rows]))


TUNERS = [AutoTvm(plan_size=16), Ansor(per_round=16), AutoTvm(search="random")]


@pytest.mark.parametrize(
    "policy", TUNERS, ids=lambda policy: f"{policy.name}-{getattr(policy, 'search', '')}"
)
class TestEveryTuner:
    def test_it_tries_each_schedule_once_and_ends_when_none_is_left(self, policy: Any, hill: Replay) -> None:
        history = searched(policy, hill)
        assert len(history.trials) == 200
        assert len({trial.proposal for trial in history.trials}) == 200
        assert history.failures == {"instantiation": 100}
        assert history.curve()[-1] == pytest.approx(0.5e-3)

    def test_the_same_seed_gives_the_same_curve(self, policy: Any, hill: Replay) -> None:
        first, again, other = (searched(policy, hill, seed).trials for seed in (3, 3, 4))
        assert first == again
        assert first != other

    def test_failures_alone_fit_no_model_and_end_cleanly(self, policy: Any, tmp_path: Path) -> None:
        replay = replay_of(log_of(tmp_path, [record(tile, 1e9, 2) for tile in range(1, 70)]))
        history = searched(policy, replay)
        assert history.failures == {"host compiler": 69}
        assert np.isinf(history.curve()).all()
        assert trials_to(history.curve(), 1e-3, 0.9) is None


@pytest.mark.parametrize("policy", TUNERS[:2], ids=lambda policy: policy.name)
def test_a_model_finds_the_least_long_before_a_random_search(policy: Any, hill: Replay) -> None:
    def median(one: Any) -> float:
        return float(
            np.median([trials_to(searched(one, hill, seed).curve(), 0.5e-3, 1.0) or 999 for seed in range(3)])
        )

    assert median(policy) < 0.6 * median(TUNERS[2])


def test_tasks_of_one_log_are_tuned_together_and_the_total_counts(tmp_path: Path) -> None:
    lines = [
        record(1, 3e-3, task="a"),
        record(1, 5e-3, task="b"),
        record(2, 1e-3, task="a"),
        record(2, 1e9, 4, "b"),
    ]
    log = log_of(tmp_path, lines)
    assert recorded_curve(log).tolist() == pytest.approx([np.inf, 8e-3, 6e-3, 6e-3])
    replay = replay_of(log)
    assert replay.best == pytest.approx(6e-3)
    for policy in TUNERS:
        history = searched(policy, replay)
        assert history.curve()[-1] == pytest.approx(6e-3)
        assert [trial.error for trial in history.trials if trial.error] == ["device"]


def test_a_configuration_measured_twice_has_the_mean_of_its_valid_times(tmp_path: Path) -> None:
    log = log_of(tmp_path, [record(1, 1e-3), record(2, 5e-3), record(1, 1e9, 4), record(1, 3e-3)])
    replay = replay_of(log)
    assert replay.tasks[0].space.size == 2
    point = replay.tasks[0].space.index({"tile": (-1, 1), "unroll": 0})
    assert next(replay.measure([TuningProposal(0, point)])).seconds == pytest.approx(2e-3)


def test_earlier_tasks_teach_later_ones_where_there_are_500_trials(tmp_path: Path) -> None:
    """Two tasks with the same hill: with transfer the second begins where the first one's best was."""
    times = {tile: 1e-3 * (1 + abs(tile - 137) / 40) for tile in range(1, 601)}
    log = log_of(tmp_path, [record(t, s, task=task) for task in ("a", "b") for t, s in times.items()])
    replay = replay_of(log)

    def first_of_b(transfer: bool) -> float:
        history = searched(AutoTvm(trials=1200, plan_size=100, transfer=transfer), replay, trials=1200)
        times_b = [trial.seconds or 1.0 for trial in history.trials if trial.proposal.task == 1]
        return min(times_b[:16])

    assert first_of_b(True) < 1.1e-3
    assert first_of_b(False) > 1.01e-3


class TestRealLog:
    """584 of 1,000 records are valid and the first 358 all failed."""

    def spec(self, shared_data: Path, policy: str, **knobs: Any) -> Any:
        source = shared_data / LOGS / "matmul_65536_1024_1024.log"
        workload = {"source": str(source)}
        spec = {"family": "compilation", "policy": policy, "workload": workload, "hardware": "v100-16g"}
        return run(load_spec({**spec, "knobs": {"repeats": 1, **knobs}}))

    def test_the_recorded_curve_is_exact(self, shared_data: Path) -> None:
        path = shared_data / LOGS / "matmul_65536_1024_1024.log"
        log: Any = open_file(path, "auto", WorkloadOptions()).reading.value
        rows = [json.loads(line)["result"] for line in path.read_text().splitlines()]
        best, expected = np.inf, []
        for times, error, *_ in rows:
            best = min(best, times[0]) if not error else best
            expected.append(best)
        assert recorded_curve(log).tolist() == expected
        assert np.isinf(expected[:358]).all()
        assert expected[358] == 2.1367809927500003
        assert expected[-1] == 0.360597962

    @pytest.mark.parametrize("policy", ["autotvm", "ansor"])
    def test_a_search_over_it_tries_all_and_says_that_nothing_was_measured(
        self, shared_data: Path, policy: str
    ) -> None:
        outcome = self.spec(shared_data, policy, trials=1000)
        metrics = {name: entry["value"] for name, entry in outcome.metrics.items()}
        assert (metrics["trials"], metrics["failed_trials"]) == (1000, 416)
        assert metrics["latency"] == 0.360597962
        assert metrics["achieved_flops"] == pytest.approx(2 * 65536 * 1024 * 1024 / 0.360597962)
        assert (
            metrics["trials_to_90"]
            <= metrics["trials_to_95"]
            <= metrics["trials_to_99"]
            <= metrics["trials_to_best"]
        )
        assert metrics["trials_to_best"] < metrics["random_trials_to_best"]
        assert outcome.plan["failed"] == {"device": 1, "host compiler": 60, "instantiation": 355}
        assert outcome.provenance["replay"]["times"] == "looked up in the log, not measured here"
        assert outcome.series["best_so_far_recorded"]["x"][0] == 359


def test_a_log_is_replayed_in_simulated_mode_only(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text(record(1, 1e-3))
    workload = {"source": str(tmp_path / "log.json")}
    spec = {
        "family": "compilation",
        "policy": "ansor",
        "workload": workload,
        "hardware": "local",
        "mode": "measured",
    }
    with pytest.raises(BadInput, match="expected a tuning log"):
        run(
            load_spec(
                {**spec, "workload": {"source": "zoo:mlp"}, "mode": "simulated", "hardware": "a100-40g"}
            )
        )


def test_a_model_leads_most_rounds_however_many_tasks_share_the_trials(hill: Replay) -> None:
    """256 trials for 4 tasks: 64 each, of which rounds of 64 would leave nothing to a model."""
    tasks = hill.tasks * 4
    for policy in (AutoTvm(), Ansor()):
        assert len(policy.tuner(tasks, 0).propose(256)) == 16
        assert len(policy.tuner(hill.tasks, 0).propose(256)) == 64


def test_the_baseline_takes_tasks_in_turn(hill: Replay) -> None:
    tuner = RandomTuner((*hill.tasks, *hill.tasks), 0, batch=3)
    assert [tuner.propose(9)[0].task for _ in range(4)] == [0, 1, 0, 1]
