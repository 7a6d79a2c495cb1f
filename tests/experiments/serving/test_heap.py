"""What the garbage collector looks at while a model serves in real time."""

from __future__ import annotations

import gc
import weakref

import pytest

pytest.importorskip("torch")
from experiments.serving import live


class Loop:
    """An object that only the collector can free."""

    def __init__(self) -> None:
        self.itself = self


def test_older_objects_are_passed_over_and_come_back() -> None:
    older = Loop()
    with live.freeze_heap():
        younger = Loop()
        seen = gc.get_objects()
        assert not any(one is older for one in seen)
        assert any(one is younger for one in seen)
    assert any(one is older for one in gc.get_objects())
    assert gc.get_freeze_count() == 0


def test_garbage_from_before_is_freed_first_and_new_garbage_still_is() -> None:
    before = weakref.ref(Loop())
    with live.freeze_heap():
        assert before() is None
        within = weakref.ref(Loop())
        gc.collect()
        assert within() is None


def test_the_heap_comes_back_from_a_run_that_failed() -> None:
    with pytest.raises(RuntimeError, match="stop"), live.freeze_heap():
        raise RuntimeError("stop")
    assert gc.get_freeze_count() == 0
