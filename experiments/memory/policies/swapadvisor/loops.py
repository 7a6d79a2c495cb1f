"""A pass over a schedule on a pool of size classes, as loops over arrays that a compiler takes as they are
(SwapAdvisor).

Every tensor is served by one class of objects. What an op uses is given a free object of its class, else that
of the resident tensor of the class with the farthest next use. What is evicted leaves right after its last
use; what returns may start once the object that it will occupy has been emptied.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

Flags = npt.NDArray[np.bool_]

UNBORN, HERE, HOST, DEAD = range(4)
NOTHING = -1
#: Columns of tensors: the class that serves it, where it is, the latest seen of its next uses and its place
#: among all uses, its latest return and departure, its turn among all arrivals, the object it is in.
KIND, WHERE, UPCOMING, ENTRY, CAME, LEFT, SINCE, OBJECT = range(8)
#: Columns of classes: the first of its objects, how many are free, and how many hold a tensor.
FIRST, FREE, HELD = range(3)
#: Columns of objects: since when, and by which departure, the first, the second, ... free one of the class is
#: empty; which tensor is in the first, the second, ... of the others.
SINCE_WHEN, BY_WHICH, RESIDENT = range(3)
#: Columns of moves: departures have a position, a tensor and whether a good copy lies on the host; returns a
#: position, a tensor, the position that needs it, the departure that empties its object and the one that took
#: it away, and whether the copy left behind serves a later departure; takeovers a position, a tensor, the
#: position again, and the departure whose object it takes over.
AT, TENSOR, CLEAN = range(3)
NEEDED, BEHIND, OWN, KEPT = range(2, 6)
#: What ``Pass.counts`` counts.
DEPARTURES, RETURNS, TAKEOVERS, ARRIVALS = range(4)


class Lists(NamedTuple):
    """What is the same for every candidate.

    Op ``o`` touches ``touched[starts[o]:starts[o + 1]]``; tensor ``t`` has the places
    ``first[t]:first[t + 1]`` among uses and is written by the ops ``writers[written[t]:written[t + 1]]``.
    """

    starts: Ints
    touched: Ints
    first: Ints
    written: Ints
    writers: Ints
    persistent: Flags


class Pass(NamedTuple):
    """A schedule with the places of its ops and uses, and where a walk over it stands."""

    order: Ints
    position: Ints
    uses: Ints
    tensors: Ints
    classes: Ints
    objects: Ints
    departures: Ints
    returns: Ints
    takeovers: Ints
    counts: Ints


def use_positions(lists: Lists, order: Ints) -> Ints:
    """Where ``order`` uses each tensor, ascending."""
    uses = np.empty(lists.first[-1], np.int64)
    filled = lists.first[:-1].copy()
    for at in range(len(order)):
        for place in range(lists.starts[order[at]], lists.starts[order[at] + 1]):
            tensor = lists.touched[place]
            uses[filled[tensor]] = at
            filled[tensor] += 1
    return uses


def walk(lists: Lists, now: Pass, begins: Flags, restore: bool) -> bool:
    """Walk the order with the persistent tensors of ``begins`` on the device; whether every op had objects.

    With ``restore`` the device ends as it began.
    """
    tensors, uses, first = now.tensors, now.uses, lists.first
    for tensor in range(len(begins)):
        if begins[tensor]:
            now.classes[tensors[tensor, KIND], FREE] -= 1
            arrive(now, tensor)
        elif lists.persistent[tensor]:
            tensors[tensor, WHERE] = HOST
    for at in range(len(now.order)):
        op = now.order[at]
        for place in range(lists.starts[op], lists.starts[op + 1]):
            tensor = lists.touched[place]
            if tensors[tensor, WHERE] != HERE and not fetch(lists, now, tensor, at):
                return False
        for place in range(lists.starts[op], lists.starts[op + 1]):
            tensor = lists.touched[place]
            if uses[first[tensor + 1] - 1] == at and not lists.persistent[tensor]:
                leave(now, tensor)
                give(now, tensors[tensor, KIND], at + 1, NOTHING)
                tensors[tensor, WHERE] = DEAD
    if restore:
        begin_again(lists, now, begins)
    return True


def fetch(lists: Lists, now: Pass, tensor: int, at: int) -> bool:
    """Give ``tensor`` an object for its use at ``at``; whether there was one."""
    tensors, kind = now.tensors, now.tensors[tensor, KIND]
    if now.classes[kind, FREE]:
        emptied, behind = take(now, kind)
    else:
        victim = farthest(lists, now, kind, at)
        if victim == NOTHING:
            return False
        emptied, behind = evict(lists, now, victim, at)
    if tensors[tensor, WHERE] == HOST:
        left = tensors[tensor, LEFT]
        ready = 0 if left == NOTHING else now.departures[left, AT] + 1
        bring_back(now, tensor, min(at, max(emptied, ready)), at, behind)
    elif behind != NOTHING:
        index = now.counts[TAKEOVERS]
        now.takeovers[index, AT], now.takeovers[index, TENSOR] = at, tensor
        now.takeovers[index, NEEDED], now.takeovers[index, BEHIND] = at, behind
        now.counts[TAKEOVERS] += 1
    arrive(now, tensor)
    return True


def arrive(now: Pass, tensor: int) -> None:
    tensors, classes, kind = now.tensors, now.classes, now.tensors[tensor, KIND]
    place = classes[kind, FIRST] + classes[kind, HELD]
    now.objects[place, RESIDENT] = tensor
    classes[kind, HELD] += 1
    tensors[tensor, WHERE], tensors[tensor, OBJECT] = HERE, place
    tensors[tensor, SINCE] = now.counts[ARRIVALS]
    now.counts[ARRIVALS] += 1


def leave(now: Pass, tensor: int) -> None:
    """The last resident of the class takes the place of ``tensor``."""
    tensors, classes, kind = now.tensors, now.classes, now.tensors[tensor, KIND]
    classes[kind, HELD] -= 1
    last = now.objects[classes[kind, FIRST] + classes[kind, HELD], RESIDENT]
    now.objects[tensors[tensor, OBJECT], RESIDENT] = last
    tensors[last, OBJECT] = tensors[tensor, OBJECT]


def give(now: Pass, kind: int, at: int, departure: int) -> None:
    """One more object of ``kind`` is free, empty from ``at`` on."""
    place = now.classes[kind, FIRST] + now.classes[kind, FREE]
    now.objects[place, SINCE_WHEN], now.objects[place, BY_WHICH] = at, departure
    now.classes[kind, FREE] += 1


def take(now: Pass, kind: int) -> tuple[int, int]:
    """Take the free object that is empty earliest: since when, and by which departure."""
    objects, first = now.objects, now.classes[kind, FIRST]
    best, last = first, first + now.classes[kind, FREE] - 1
    for place in range(first + 1, last + 1):
        earlier = objects[place, SINCE_WHEN] - objects[best, SINCE_WHEN]
        if earlier < 0 or (earlier == 0 and objects[place, BY_WHICH] < objects[best, BY_WHICH]):
            best = place
    when, which = objects[best, SINCE_WHEN], objects[best, BY_WHICH]
    objects[best, SINCE_WHEN], objects[best, BY_WHICH] = objects[last, SINCE_WHEN], objects[last, BY_WHICH]
    now.classes[kind, FREE] -= 1
    return when, which


def farthest(lists: Lists, now: Pass, kind: int, at: int) -> int:
    """The resident of ``kind`` that is used last, none that is used now; of two the one that came first."""
    tensors, first = now.tensors, now.classes[kind, FIRST]
    victim, latest = NOTHING, NOTHING
    for place in range(first, first + now.classes[kind, HELD]):
        tensor = now.objects[place, RESIDENT]
        if tensors[tensor, UPCOMING] < at:
            look_ahead(lists, now, tensor, at)
        use = tensors[tensor, UPCOMING]
        if use == at or use < latest:
            continue
        if use > latest or tensors[tensor, SINCE] < tensors[victim, SINCE]:
            victim, latest = tensor, use
    return victim


def look_ahead(lists: Lists, now: Pass, tensor: int, at: int) -> None:
    """Find the first use from ``at`` on; persistent tensors are used again in the next step."""
    entry, end = now.tensors[tensor, ENTRY], lists.first[tensor + 1]
    while entry < end and now.uses[entry] < at:
        entry += 1
    now.tensors[tensor, ENTRY] = entry
    again = now.uses[lists.first[tensor]] + len(now.order)
    now.tensors[tensor, UPCOMING] = now.uses[entry] if entry < end else again


def evict(lists: Lists, now: Pass, tensor: int, at: int) -> tuple[int, int]:
    """``tensor`` leaves before its next use from ``at`` on: the position where it does, and the departure."""
    tensors, returns, index = now.tensors, now.returns, now.counts[DEPARTURES]
    came, entry = tensors[tensor, CAME], tensors[tensor, ENTRY]
    clean = came != NOTHING
    for place in range(lists.written[tensor], lists.written[tensor + 1]):
        clean = clean and not returns[came, NEEDED] <= now.position[lists.writers[place]] < at
    if clean:
        returns[came, KEPT] = 1
    since = now.uses[entry - 1] + 1 if entry > lists.first[tensor] else 0
    now.departures[index, AT], now.departures[index, TENSOR], now.departures[index, CLEAN] = (
        since,
        tensor,
        clean,
    )
    now.counts[DEPARTURES] += 1
    leave(now, tensor)
    tensors[tensor, LEFT], tensors[tensor, WHERE] = index, HOST
    return since, index


def bring_back(now: Pass, tensor: int, at: int, needed: int, behind: int) -> None:
    returns, index = now.returns, now.counts[RETURNS]
    returns[index, AT], returns[index, TENSOR], returns[index, NEEDED] = at, tensor, needed
    returns[index, BEHIND], returns[index, OWN] = behind, now.tensors[tensor, LEFT]
    returns[index, KEPT] = 0
    now.tensors[tensor, CAME] = index
    now.counts[RETURNS] += 1


def begin_again(lists: Lists, now: Pass, begins: Flags) -> None:
    """The next step begins as this one did: what was not there leaves, what was there returns."""
    tensors, end = now.tensors, len(now.order)
    for tensor in range(len(begins)):
        if lists.persistent[tensor] and tensors[tensor, WHERE] == HERE and not begins[tensor]:
            look_ahead(lists, now, tensor, end)
            at, departure = evict(lists, now, tensor, end)
            give(now, tensors[tensor, KIND], at, departure)
    for tensor in range(len(begins)):
        if begins[tensor] and tensors[tensor, WHERE] == HOST:
            _, behind = take(now, tensors[tensor, KIND])
            bring_back(now, tensor, end, end, behind)
            tensors[tensor, WHERE] = HERE


def seconds_of(
    order: Ints, departures: Ints, returns: Ints, takeovers: Ints, seconds: Floats, away: Floats, home: Floats
) -> float:
    """Seconds of the step with three streams, each first come first served.

    They are computation (``seconds`` of each op), copies out (``away`` of each tensor) and in (``home``). At
    one position departures come first.
    """
    end = len(order)
    leaves, leaving = rows_at(departures, AT, end)
    comes, coming = rows_at(returns, AT, end)
    needs, needed = rows_at(returns, NEEDED, end)
    takes, taken = rows_at(takeovers, AT, end)
    sent, arrival = np.zeros(len(departures)), np.zeros(len(returns))
    now = out_free = in_free = 0.0
    for at in range(end + 1):
        for index in leaving[leaves[at] : leaves[at + 1]]:
            sent[index] = now
            if not departures[index, CLEAN]:
                sent[index] = out_free = max(now, out_free) + away[departures[index, TENSOR]]
        for index in coming[comes[at] : comes[at + 1]]:
            start = max(now, in_free)
            for column in (BEHIND, OWN):
                if returns[index, column] != NOTHING:
                    start = max(start, sent[returns[index, column]])
            arrival[index] = in_free = start + home[returns[index, TENSOR]]
        if at < end:
            for index in needed[needs[at] : needs[at + 1]]:
                now = max(now, arrival[index])
            for index in taken[takes[at] : takes[at + 1]]:
                now = max(now, sent[takeovers[index, BEHIND]])
            now += seconds[order[at]]
    return max(now, out_free, in_free)


def rows_at(rows: Ints, column: int, end: int) -> tuple[Ints, Ints]:
    """``chosen[starts[p]:starts[p + 1]]`` are the rows whose ``column`` has position ``p``, in order."""
    starts = np.zeros(end + 2, np.int64)
    for index in range(len(rows)):
        starts[rows[index, column] + 1] += 1
    for at in range(1, end + 2):
        starts[at] += starts[at - 1]
    chosen, filled = np.empty(len(rows), np.int64), starts.copy()
    for index in range(len(rows)):
        at = rows[index, column]
        chosen[filled[at]] = index
        filled[at] += 1
    return starts, chosen
