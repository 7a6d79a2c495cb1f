"""Memory that a step frees is there for the next one, and no full collection falls into a live run.

In processes of their own, which are small and have done nothing before.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

#: Prints the pages that twenty steps of a process map.
STEPS = """
from experiments.core.heap import keep_freed_memory
from tests.experiments.core.forked_program import pages_of_steps

if KEPT:
    keep_freed_memory()
print(pages_of_steps())
"""
#: An object that only the collector can free, and whether it would look at one.
LOOP = """
import gc, weakref
from experiments.core.heap import freeze_heap

class Loop:
    def __init__(self):
        self.itself = self

def is_seen(one):
    return any(other is one for other in gc.get_objects())
"""


def carry_out(script: str) -> str:
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def with_loops(script: str) -> None:
    carry_out(LOOP + textwrap.dedent(script))


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_steps_map_no_page_anew() -> None:
    mapped = {kept: int(carry_out(STEPS.replace("KEPT", str(kept)))) for kept in (False, True)}
    assert mapped[False] > 20 * 3 * 1024  # of 2,048 pages a block, as glibc ships
    assert mapped[True] < 100


def test_older_objects_are_passed_over_and_come_back() -> None:
    with_loops("""
        older = Loop()
        with freeze_heap():
            younger = Loop()
            assert is_seen(younger) and not is_seen(older)
        assert is_seen(older) and gc.get_freeze_count() == 0
    """)


def test_what_was_frozen_before_stays_so() -> None:
    with_loops("""
        older = Loop()
        gc.freeze()
        with freeze_heap():
            pass
        assert not is_seen(older)
    """)


def test_garbage_from_before_is_freed_first_and_new_garbage_still_is() -> None:
    with_loops("""
        before = weakref.ref(Loop())
        with freeze_heap():
            assert before() is None
            within = weakref.ref(Loop())
            gc.collect()
            assert within() is None
    """)


def test_the_heap_comes_back_from_a_run_that_failed() -> None:
    with_loops("""
        try:
            with freeze_heap():
                raise RuntimeError
        except RuntimeError:
            assert gc.get_freeze_count() == 0
    """)
