"""What the garbage collector looks at while a model serves in real time."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

pytest.importorskip("torch")
from experiments.core.completion import complete
from experiments.core.progress import silent
from experiments.core.spec import load_spec
from experiments.serving import live
from experiments.serving.experiment.measured import prepare, serve_on
from experiments.serving.interface.paged import PagedPolicy
from experiments.sources import Loaded
from tests.experiments.serving.traces import requests


class Loop:
    """An object that only the collector can free."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def thawed() -> None:
    """As where nobody has put anything aside, which the tests do."""
    gc.unfreeze()


def test_what_was_frozen_before_stays_so() -> None:
    older = Loop()
    gc.freeze()
    with live.freeze_heap():
        pass
    assert not any(one is older for one in gc.get_objects())


@pytest.mark.usefixtures("thawed")
def test_older_objects_are_passed_over_and_come_back() -> None:
    older = Loop()
    with live.freeze_heap():
        younger = Loop()
        seen = gc.get_objects()
        assert not any(one is older for one in seen)
        assert any(one is younger for one in seen)
    assert any(one is older for one in gc.get_objects())
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("thawed")
def test_garbage_from_before_is_freed_first_and_new_garbage_still_is() -> None:
    before = weakref.ref(Loop())
    with live.freeze_heap():
        assert before() is None
        within = weakref.ref(Loop())
        gc.collect()
        assert within() is None


@pytest.mark.usefixtures("thawed")
def test_the_heap_comes_back_from_a_run_that_failed() -> None:
    with pytest.raises(RuntimeError, match="stop"), live.freeze_heap():
        raise RuntimeError("stop")
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("thawed")
def test_it_is_frozen_while_requests_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the steps are measured by which the run is foretold."""
    memory, frozen = live.PagedGpt.memory, []

    def note(self: Any, blocks: int, size: int) -> Any:
        frozen.append(gc.get_freeze_count() > 0)
        return memory(self, blocks, size)

    trace = requests((0, 8, 4), (0, 8, 4))
    workload = {"source": "zoo:gpt2-tiny"}
    row = {"family": "serving", "policy": "vllm_v1", "mode": "measured", "hardware": "local"}
    spec, policy = complete(load_spec({**row, "workload": workload}))
    assert isinstance(policy, PagedPolicy)
    host = prepare("zoo:gpt2-tiny", "float32", 0, 12, silent)
    monkeypatch.setattr(live.PagedGpt, "memory", note)
    result = serve_on(host, trace, Loaded(trace, "requests", "by hand", ""), spec, policy, silent)
    assert result.status == "ok" and all(frozen) and len(frozen) > 1
