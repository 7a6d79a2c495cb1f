import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.core.events import EventQueue


def test_equal_times_run_by_priority_then_in_the_order_pushed() -> None:
    queue: EventQueue[str] = EventQueue()
    queue.push(2.0, "late")
    queue.push(1.0, "arrival", priority=1)
    queue.push(1.0, "completion", priority=0)
    queue.push(1.0, "second arrival", priority=1)
    assert [queue.pop()[1] for _ in range(4)] == ["completion", "arrival", "second arrival", "late"]


def test_the_past_cannot_be_rewritten() -> None:
    queue: EventQueue[str] = EventQueue()
    queue.push(5.0, "now")
    queue.pop()
    with pytest.raises(ValueError, match="before now=5"):
        queue.push(4.0, "too late")
    with pytest.raises(ValueError, match="nan"):
        queue.push(float("nan"), "never")


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 3))))
def test_events_come_out_sorted_and_ties_keep_their_order(rows: list[tuple[float, int]]) -> None:
    queue: EventQueue[tuple[float, int, int]] = EventQueue()
    for number, (time, priority) in enumerate(rows):
        queue.push(time, (time, priority, number), priority)
    out = [queue.pop()[1] for _ in rows]
    assert out == sorted(out)
