"""The replay against one that looks at every task in order of time, on random graphs."""

from __future__ import annotations

import heapq

from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.parallel.simulator.network import Message, join
from experiments.parallel.simulator.tasks import TaskGraph, replay

CHANNELS = st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True).map(lambda c: tuple(sorted(c)))


@st.composite
def messages(draw: st.DrawFn) -> Message:
    shares = draw(st.lists(st.tuples(st.integers(6, 7), st.integers(1, 9)), max_size=1))
    channels, seconds = draw(CHANNELS), float(draw(st.integers(1, 9)))
    return Message(channels, seconds, (0,), 1.0, "send", 1.0, tuple((c, float(s)) for c, s in shares))


@st.composite
def graphs(draw: st.DrawFn) -> TaskGraph:
    """Up to four lanes of computations, blocking messages and messages after any earlier task."""
    pool = draw(st.lists(messages(), min_size=1, max_size=4))
    graph = TaskGraph()
    for number in range(draw(st.integers(1, 25))):
        lane, what = draw(st.integers(0, 3)), draw(st.sampled_from(["compute", "block", "send"]))
        if what == "compute" or graph.lane_end(lane) is None:
            task = graph.compute("C", float(draw(st.integers(0, 9))), lane)
        elif what == "block":
            task = graph.blocking("B", draw(st.sampled_from(pool)), lane)
        else:
            task = graph.send("S", draw(st.sampled_from(pool)))
        for before in sorted(draw(st.sets(st.integers(0, max(0, number - 1)), max_size=2))):
            if before < task:
                graph.edge(before, task)
    return graph


def plain(graph: TaskGraph) -> list[float]:
    """Ends when every task waits in one queue by the time at which it is ready, then by its number."""
    count = len(graph)
    waiting = [sum(after.count(task) for after in graph.successors) for task in range(count)]
    ready, end, free = [0.0] * count, [0.0] * count, dict.fromkeys(range(8), 0.0)
    queue = [(0.0, task) for task in range(count) if not waiting[task]]
    heapq.heapify(queue)
    while queue:
        now, task = heapq.heappop(queue)
        message = graph.message[task]
        start = max([now, *(free[c] for c in message.channels)]) if message else now
        end[task] = start + graph.seconds[task]
        for channel, own in message.shares if message else ():
            free[channel] = max(free[channel], now) + own
            end[task] = max(end[task], free[channel])
        free.update(dict.fromkeys(message.channels if message else (), end[task]))
        for after in graph.successors[task]:
            ready[after] = max(ready[after], end[task])
            waiting[after] -= 1
            if not waiting[after]:
                heapq.heappush(queue, (ready[after], after))
    return end


@given(graphs())
@settings(max_examples=80)
def test_what_meets_nothing_may_be_taken_out_of_turn(graph: TaskGraph) -> None:
    assert replay(graph).end == plain(graph)


@given(graphs())
@settings(max_examples=30)
def test_messages_that_take_no_time_delay_nobody(graph: TaskGraph) -> None:
    free, busy = replay(graph, free_messages=True), replay(graph)
    assert all(early <= late for early, late in zip(free.end, busy.end, strict=True))


def test_messages_in_a_row_on_the_same_channels_are_one() -> None:
    one, two = (Message((0, 1), float(s), (0,), 1.0, "all_reduce", 1.0) for s in (2, 3))
    other = Message((2,), 4.0, (0,), 1.0, "all_gather", 1.0)
    found = list(join([one, two, other, one]))
    assert [message.seconds for message in found] == [5, 4, 2]
    assert found[0].parts == (one, two)
