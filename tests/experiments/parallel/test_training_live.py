"""Asynchronous training by three processes over gloo: one process's weights where nothing is in flight, and
the staleness and versions that the plan's trace foretells where something is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload, load_spec
from experiments.hardware import resolve
from experiments.parallel.interface import LivePolicy
from experiments.parallel.interface.versions import version_trace
from experiments.parallel.policies.ampnet import AmpNet
from experiments.parallel.policies.distbelief import DistBelief
from experiments.parallel.policies.kungfu import KungFu
from experiments.parallel.policies.large_minibatch import LargeMinibatch
from experiments.parallel.policies.parameter_server import ParameterServer
from experiments.parallel.policies.pipedream import PipeDream
from experiments.parallel.policies.pipedream_2bw import PipeDream2BW
from experiments.parallel.policies.pipemare import PipeMare
from experiments.run import run
from experiments.sources import layers_of
from experiments.workloads.model import ModelSource
from tests.experiments.parallel.builders import cluster, estimate
from tests.experiments.parallel.ranks import carry_out

pytestmark = pytest.mark.torch

OPTIONS = WorkloadOptions(batch=12)
PLANS: dict[str, LivePolicy] = {
    "bulk": ParameterServer(consistency="bsp", iterations=10),
    "alone": ParameterServer(consistency="asp", servers=2, iterations=10),
    "stale": ParameterServer(consistency="ssp", staleness=1, slow_worker=3.0, iterations=10),
    "free": ParameterServer(consistency="asp", slow_worker=3.0, iterations=10),
    "downpour alone": DistBelief(servers=2, iterations=10, wait=True),
    "downpour": DistBelief(n_fetch=4, n_push=2, iterations=10),
    "pipedream": PipeDream(replicate=False, mini_batches=10),
    "vertical": PipeDream(replicate=False, mini_batches=10, vertical_sync=True),
    "2bw": PipeDream2BW(depth=3, updates=6, momentum=0.5),
    "one key": AmpNet(max_active_keys=1, min_update_frequency=2, updates=8),
    "ampnet": AmpNet(updates=12),
    "flushed": PipeMare(mini_batches=6, synchronous=6),
    "pipemare": PipeMare(mini_batches=10, synchronous=2),
    "large": LargeMinibatch(reference_batch=4, warm_up=4, momentum=0.5, updates=8),
    "kungfu": KungFu(window=4, updates=20, gain=0.0, variance=1e9),
}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """As the trained processes have: several threads add in another order."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every plan on a perceptron of three linear layers, trained by the same three processes."""
    from experiments.parallel.live.asynchronous.problem import TrainingJob

    source = ModelSource("zoo:mlp", zoo="mlp", options=OPTIONS)
    model, _ = layers_of(Workload("zoo:mlp", options=OPTIONS), resolve("cpu-generic").device)
    folder, hardware = tmp_path_factory.mktemp("trainings"), cluster(1, 3)
    made = {}
    for name, policy in PLANS.items():
        plan = policy.place(model, hardware, 12, estimate(model, hardware))
        made[name] = TrainingJob(plan, model.layer, source, 0, folder / name.replace(" ", "-"))
        assert made[name].ranks == 3
        made[name].folder.mkdir()
        made[name].save()
    carry_out("tests.experiments.parallel.all_trainings", folder, 3)
    return made


def difference(found: dict[str, Any], expected: dict[str, Any]) -> float:
    assert set(found) == set(expected)
    return max(float((found[name] - value).abs().max()) for name, value in expected.items())


@pytest.mark.parametrize(
    ("name", "updates", "exact"),
    [
        ("bulk", 10, True),
        ("alone", 10, True),
        ("downpour alone", 10, True),
        ("one key", 8, True),
        ("flushed", 6, True),
        ("large", 8, False),
    ],
)
def test_with_nothing_in_flight_the_weights_are_those_of_one_process(
    jobs: dict[str, Any], name: str, updates: int, exact: bool
) -> None:
    """Bit for bit, unless three workers' gradients are added in another order; the losses on the way are the
    same too.
    """
    from experiments.parallel.live.asynchronous import result_of, trained_weights
    from experiments.parallel.live.asynchronous.problem import TrainingProblem
    from experiments.parallel.live.asynchronous.sequential import sequential

    alone = sequential(TrainingProblem(jobs[name]), updates)
    apart = difference(trained_weights(jobs[name], TrainingProblem(jobs[name])), alone.weights)
    assert apart == 0.0 if exact else apart < 1e-6
    assert alone.losses[4] < alone.losses[0]  # the same samples at the second visit
    seen = result_of(jobs[name], TrainingProblem(jobs[name]))
    assert seen.series["loss"].y == pytest.approx(alone.losses, rel=1e-5)
    assert seen.metrics.get("staleness_max", 0.0) == 0.0


@pytest.mark.parametrize("name", ["pipedream", "vertical", "2bw"])
def test_every_gradient_is_of_the_versions_that_the_trace_says(jobs: dict[str, Any], name: str) -> None:
    """Played again in one process: each micro-batch's gradient at weights put together from the versions of
    its stages.
    """
    from experiments.parallel.live.asynchronous import trained_weights
    from experiments.parallel.live.asynchronous.problem import TrainingProblem

    problem = TrainingProblem(jobs[name])
    assert difference(trained_weights(jobs[name], problem), played_again(jobs[name])) < 1e-6


def played_again(job: Any) -> dict[str, Any]:
    from experiments.parallel.live.asynchronous.learner import Learner
    from experiments.parallel.live.asynchronous.problem import TrainingProblem
    from experiments.parallel.live.asynchronous.sequential import gradients_of, mean

    problem, uses = TrainingProblem(job), version_trace(job.plan).uses
    stage_of = {name: rank for rank in range(job.ranks) for name in job.tensors("weights", rank)}
    named = dict(problem.built.module.named_parameters())
    learner = Learner(problem.training.learning)
    versions = [{name: weight.detach().clone() for name, weight in named.items()}]
    gathered = []
    for micro_batch in range(job.plan.micro_batches):
        for name, weight in named.items():
            use = uses[stage_of[name], micro_batch]
            weight.data.copy_(versions[use.forward][name])
        gathered.append(gradients_of(problem, problem.position(micro_batch))[1])
        if len(gathered) == problem.training.weights.every:  # type: ignore[union-attr]
            values = {name: weight.clone() for name, weight in versions[-1].items()}
            learner.update(list(values.values()), mean(gathered), len(versions) - 1)
            versions.append(values)
            gathered = []
    return versions[-1]


@pytest.mark.parametrize(
    ("name", "late", "kept"),
    [
        ("pipedream", [2, 1, 0], [3, 2, 1]),
        ("vertical", [2, 2, 2], [3, 3, 3]),
        ("2bw", [1, 1, 1], [2, 2, 2]),
        ("ampnet", None, [1, 1, 1]),
        ("pipemare", None, [1, 1, 1]),
    ],
)
def test_measured_staleness_and_versions_are_the_traces(
    jobs: dict[str, Any], name: str, late: list[int] | None, kept: list[int]
) -> None:
    trace = version_trace(jobs[name].plan)
    reports = [jobs[name].report(rank) for rank in range(3)]
    for stage, report in enumerate(reports):
        assert sorted(report["late"]) == sorted(use.staleness for use in trace.of_stage(stage))
    assert late is None or [max(report["late"]) for report in reports] == late
    assert [report["versions"] for report in reports] == kept
    assert list(trace.kept) == kept


def test_a_worker_is_never_further_ahead_than_it_may(jobs: dict[str, Any]) -> None:
    for name, bound in (("bulk", 0), ("stale", 1)):
        server = jobs[name].report(2)
        assert max(server["ahead"]) <= bound
        assert len(server["ahead"]) == 20  # each of two workers asked ten times
    assert jobs["free"].report(2)["updates"] == 20
    assert len(jobs["free"].report(2)["late"]) == 20


def test_pushes_between_fetches_are_late_by_the_workers_own(jobs: dict[str, Any]) -> None:
    """Fetched every 4 iterations, pushed every 2: five pushes of each worker; the second after a fetch misses
    the first.
    """
    server = jobs["downpour"].report(2)
    assert len(server["late"]) == 10
    assert max(server["late"]) >= 1


def test_workers_adapt_alike(jobs: dict[str, Any]) -> None:
    """However many the throughput keeps: all ranks count the same workers, and no part of the data is taken
    twice.
    """
    reports = [jobs["kungfu"].report(rank) for rank in range(3)]
    workers = [[count for _, count in report["curves"]["workers"]] for report in reports]
    assert workers[0] == workers[1] == workers[2]
    assert workers[0][:5] == [1, 1, 1, 1, 2]
    taken = [position for report in reports for _, position, _ in report["losses"]]
    assert sorted(taken) == list(range(sum(workers[0])))
    averaging = [value for _, value in reports[0]["curves"]["averages_weights"]]
    assert averaging[0] == 1.0  # until the variance had been looked at
    assert set(averaging[1:]) <= {0.0}


def test_warm_up_is_measured(jobs: dict[str, Any]) -> None:
    rates = [rate for _, rate in jobs["large"].report(0)["curves"]["learning_rate"]]
    assert rates == pytest.approx([0.1, 0.15, 0.2, 0.25, 0.3, 0.3, 0.3, 0.3])


def test_what_is_loaded_before_a_backward_pass_is_what_it_uses() -> None:
    """A graph reads its weights where they lie: other values there, written unseen, make another input
    gradient.
    """
    import torch

    weight = torch.nn.Parameter(torch.tensor([[2.0, 0.0], [0.0, 3.0]]))
    x = torch.tensor([[1.0, 5.0]], requires_grad=True)
    y = torch.nn.functional.linear(x, weight)
    weight.data.copy_(torch.tensor([[7.0, 0.0], [0.0, 9.0]]))
    torch.autograd.backward([y], [torch.ones_like(y)])
    assert x.grad is not None
    assert x.grad.tolist() == [[7.0, 9.0]]  # the newer weights
    assert weight.grad is not None
    assert weight.grad.tolist() == [[1.0, 5.0], [1.0, 5.0]]  # the activations of the forward pass


def test_a_measured_run_shows_losses_and_staleness() -> None:
    outcome = run(load_spec(spec("pipedream", {"replicate": False, "mini_batches": 8})))
    assert (outcome.status, outcome.violations) == ("ok", [])
    assert outcome.metrics["staleness_max"]["value"] == 1.0
    assert outcome.metrics["weight_versions"]["value"] == 2.0
    assert len(outcome.series["loss"]["y"]) == len(outcome.series["loss_one_process"]["y"]) == 8
    assert outcome.series["staleness_by_rank"]["y"] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("policy", "knobs", "source", "why"),
    [
        ("pipedream", {"replicate": False}, "zoo:gpt2-tiny", "several layers share"),
        ("parameter_server", {"servers": 0}, "zoo:mlp", "servers on devices that compute"),
        ("distbelief", {"method": "sandblaster", "portions": 3}, "zoo:mlp", "portions of a batch"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_a_process_starts(
    policy: str, knobs: dict[str, Any], source: str, why: str
) -> None:
    with pytest.raises(BadInput, match=why):
        run(load_spec(spec(policy, knobs, source)))


def spec(policy: str, knobs: dict[str, Any], source: str = "zoo:mlp") -> dict[str, Any]:
    workload = {"source": source, "options": {"batch": 12}}
    return {
        "family": "parallel",
        "policy": policy,
        "knobs": knobs,
        "workload": workload,
        "hardware": "local",
        "mode": "measured",
    }
