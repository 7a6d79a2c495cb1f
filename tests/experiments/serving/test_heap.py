"""What the garbage collector looks at while a model serves in real time."""

from __future__ import annotations

import gc
from typing import Any

import pytest

pytest.importorskip("torch")
from experiments.core.completion import complete
from experiments.core.progress import silent
from experiments.core.spec import load_spec
from experiments.serving import live
from experiments.serving.experiment import measured
from experiments.serving.experiment.measured import prepare, serve_on
from experiments.serving.interface.paged import PagedPolicy
from experiments.sources import Loaded
from tests.experiments.serving.traces import requests


def test_the_heap_is_frozen_while_requests_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the steps are measured by which the run is foretold."""
    memory, frozen, older = live.PagedGpt.memory, list[bool](), list[object]()

    def note(self: Any, blocks: int, size: int) -> Any:
        frozen.append(not any(one is older for one in gc.get_objects()))
        return memory(self, blocks, size)

    trace = requests((0, 8, 4), (0, 8, 4))
    workload = {"source": "zoo:gpt2-tiny"}
    row = {"family": "serving", "policy": "vllm_v1", "mode": "measured", "hardware": "local"}
    spec, policy = complete(load_spec({**row, "workload": workload}))
    assert isinstance(policy, PagedPolicy)
    kept = list[bool]()
    monkeypatch.setattr(measured, "keep_freed_memory", lambda: kept.append(True))
    host = prepare("zoo:gpt2-tiny", "float32", 0, 12, silent)
    assert kept, "what the process frees is not returned while it is measured"
    assert any(one is older for one in gc.get_objects())
    monkeypatch.setattr(live.PagedGpt, "memory", note)
    result = serve_on(host, trace, Loaded(trace, "requests", "by hand", ""), spec, policy, silent)
    assert result.status == "ok" and all(frozen) and len(frozen) > 1
