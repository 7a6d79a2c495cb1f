"""A device that is shared for real: layers in one region, passes that wait, training that stops."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from experiments.core import registry
from experiments.core.completion import complete
from experiments.core.errors import Infeasible
from experiments.core.progress import silent
from experiments.core.spec import load_spec
from experiments.serving.experiment.switching import measure_switches, switch_here
from experiments.serving.interface.sharing import HostCosts, SharingPolicy
from experiments.workloads.model import ModelSource

torch = pytest.importorskip("torch")
live = pytest.importorskip("experiments.serving.live.switching")
from experiments.serving.live.switching.passes import GatedPasses  # noqa: E402
from experiments.serving.live.switching.trainer import Trainer  # noqa: E402
from tests.variants import variants  # noqa: E402

pytestmark = pytest.mark.torch
MODEL = "zoo:resnet18"
OPTIONS = {"batch": 2, "image": 64}


def source(training: bool) -> ModelSource:
    from experiments.core.spec import load_workload
    from experiments.sources import model_of

    return model_of(load_workload({"source": MODEL, "options": {**OPTIONS, "training": training}}))[0]


@pytest.fixture
def asked() -> Any:
    return live.LayeredModel(source(training=False), "cpu")


@pytest.fixture
def trainer() -> Iterator[Trainer]:
    made = Trainer(live.LayeredModel(source(training=True), "cpu"))
    yield made
    made.close()


def spec(policy: str, **knobs: Any) -> Any:
    workload = {"source": MODEL, "options": OPTIONS}
    given = {"family": "serving", "policy": policy, "mode": "measured", "hardware": "local"}
    return load_spec({**given, "workload": workload, "knobs": knobs})


def test_weights_lie_one_after_another_and_answer_as_before(asked: Any) -> None:
    from experiments.models.build import build

    torch.manual_seed(0)
    plain = build(source(training=False)).module
    with torch.inference_mode():
        assert torch.equal(plain(*asked.inputs), asked.module(*asked.inputs))
    ends = [layer.end for layer in asked.layers]
    assert [layer.begin for layer in asked.layers] == [0, *ends[:-1]] and ends[-1] == len(asked.region)
    weights = sum(one.nbytes for one in (*plain.parameters(), *plain.buffers()))
    assert weights <= ends[-1] < weights + 512 * 200


def test_memory_of_an_iteration_that_is_stopped_in_its_backward_pass_is_free(trainer: Trainer) -> None:
    """What the pass had yet to read too, which torch's engine would keep until the next one."""
    layers, alive = trainer.model.layers, list[weakref.ref[Any]]()
    for layer in layers:
        layer.module.register_forward_hook(lambda _module, _inputs, out: alive.append(weakref.ref(out)))
    is_backward = threading.Event()

    def wait_for_the_request(_: Any) -> None:
        is_backward.set()
        time.sleep(0.05)

    last = list(trainer.model.module.parameters())[-1]
    last.register_post_accumulate_grad_hook(wait_for_the_request)
    trainer.resume()
    assert is_backward.wait(60)
    trainer.stop()
    trainer.clean()
    assert len(alive) == len(layers) and [out for out in alive if out() is not None] == []


def test_a_layer_that_was_not_fetched_is_not_there(asked: Any) -> None:
    with torch.inference_mode():
        right = asked.module(*asked.inputs).clone()
        asked.clear()
        asked.fetch(0, 3)
        assert not torch.equal(asked.module(*asked.inputs), right)
        asked.fetch(3, len(asked.layers))
        assert torch.equal(asked.module(*asked.inputs), right)


def test_a_pass_goes_no_further_than_it_is_let(asked: Any) -> None:
    passes = GatedPasses(asked)
    seen: list[int] = []
    for place, layer in enumerate(asked.layers):
        layer.module.register_forward_hook(lambda *_, place=place: seen.append(place))
    passes.release(5)
    time.sleep(0.05)
    assert seen == [0, 1, 2, 3, 4] and passes.output is None
    passes.release(len(asked.layers))
    assert seen == [*range(len(asked.layers))] and passes.output is not None
    passes.begin_next()
    passes.release(2)
    assert seen[-2:] == [0, 1]
    passes.close()
    assert not any("GatedPasses" in thread.name for thread in threading.enumerate())


def test_training_stops_at_a_layer_and_learns_when_it_goes_on(trainer: Trainer) -> None:
    before = trainer.model.region.clone()
    trainer.resume()
    trainer.await_iterations(2)
    trainer.stop()
    stopped, weights = trainer.iterations, trainer.model.region.clone()
    trainer.clean()
    time.sleep(0.2)
    assert trainer.iterations == stopped and torch.equal(trainer.model.region, weights)
    assert not torch.equal(weights, before), "its weights are those of the region"
    assert all(one.grad is None for one in trainer.model.module.parameters())
    trainer.resume()
    trainer.await_iterations(stopped + 1)


@pytest.mark.parametrize(
    "knobs",
    variants(
        {}, {"workers": "one process"}, {"transmission": "per layer"}, {"transmission": "ready"}, kept=2
    ),
    ids=str,
)
def test_every_variant_answers_each_request_after_stopping_training(
    knobs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiments.serving.live.switching.device.PAUSE", 0.02)
    monkeypatch.setattr("experiments.serving.live.switching.device.CLEANINGS", 1)
    monkeypatch.setattr("experiments.serving.experiment.switching.REQUESTS", 3)
    asked, made = complete(spec("pipeswitch", **knobs))
    assert isinstance(made, SharingPolicy)
    result = measure_switches(asked, made, silent, live, "cpu", "cpu")
    assert result.metrics["requests"] == 3 and result.metrics["unfinished_requests"] == 0
    assert result.metrics["switch_time_mean"] > 0
    assert result.metrics["best_effort_throughput"] > 0, "it trains between requests"
    predicted = result.notes["predicted"]
    assert predicted["latency_mean"] > 0 and predicted.keys() <= result.metrics.keys()
    copied = result.plan["copies"]["rows"]
    assert bool(copied) == (knobs.get("transmission") != "ready")


def test_a_process_that_is_started_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.serving.experiment.switching.STARTS", 1)
    monkeypatch.setattr("experiments.serving.live.switching.device.PAUSE", 0.02)
    asked, made = complete(spec("stop_and_start"))
    assert isinstance(made, SharingPolicy)
    result = measure_switches(asked, made, silent, live, "cpu", "cpu")
    assert result.metrics["switch_time_mean"] > 1, "a framework is imported"
    assert 0.5 < result.notes["predicted"]["latency_mean"] / result.metrics["latency_mean"] < 2


def test_a_host_without_a_gpu_says_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.serving.live.default_device", lambda: "cpu")
    asked, made = complete(spec("pipeswitch"))
    assert isinstance(made, SharingPolicy)
    with pytest.raises(Infeasible, match="unsupported here"):
        switch_here(asked, made, silent)


def test_costs_of_a_host_take_the_place_of_the_knobs() -> None:
    costs = HostCosts(clean=0.5, start=3.0, first_call=0.25, pageable=0.4)
    one = registry.create("serving", "pipeswitch", {"workers": "one process"}).on_host(costs)  # type: ignore[attr-defined]
    assert one.clean_time == 0.5
    other = registry.create("serving", "stop_and_start", {}).on_host(costs)  # type: ignore[attr-defined]
    assert (other.process_start, other.first_call, other.pageable_share) == (3.0, 0.25, 0.4)
