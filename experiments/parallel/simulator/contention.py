"""Which messages can meet, and how a message gets its channels.

Channels that the same messages use are one (a group's devices, the rails of a node), and one that only a
single lane uses, waiting for each message before its next, or a single message, is none: nobody can meet
there.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from experiments.parallel.simulator.network import Message


class ContendedChannels(NamedTuple):
    """What a message must have: ``channels`` to itself, and of each of ``shares`` its seconds.

    With a ``period`` it is a wait for the next multiple of it.
    """

    channels: tuple[int, ...]
    shares: tuple[tuple[int, float], ...]
    period: float = 0.0


NOTHING = ContendedChannels((), ())


def take(
    held: ContendedChannels, ready: float, seconds: float, free: dict[int, float]
) -> tuple[float, float]:
    """Return start and end of a message that is ready and lasts ``seconds`` alone.

    ``free`` is when each channel will be.
    """
    start = ready
    if held.period:
        return ready, max(ready, held.period * math.ceil(ready / held.period - 1e-9))
    for channel in held.channels:
        start = max(start, free.get(channel, 0.0))
    end = start + seconds
    for channel, own in held.shares:
        free[channel] = max(free.get(channel, 0.0), ready) + own
        end = max(end, free[channel])
    for channel in held.channels:
        free[channel] = end
    return start, end


def find_contention(
    messages: Sequence[Message | None], owners: Sequence[int]
) -> list[ContendedChannels | None]:
    """For each task what its message can meet others on.

    Nothing for computations and messages that meet none. ``owners`` are the lanes that do nothing else
    meanwhile, -1 where there is none.
    """
    users: dict[int, list[int]] = defaultdict(list)
    distinct: dict[int, Message] = {}
    for message, owner in zip(messages, owners, strict=True):
        if message is not None:
            users[id(message)].append(owner)
            distinct[id(message)] = message
    named = _representatives(distinct, users)
    found = {key: _contended_channels(message, named) for key, message in distinct.items()}
    return [None if message is None else found[id(message)] for message in messages]


def _contended_channels(message: Message, named: Mapping[int, int | None]) -> ContendedChannels | None:
    own = dict.fromkeys(named[channel] for channel in message.channels)
    channels = tuple(channel for channel in own if channel is not None)
    shares = {named[channel]: seconds for channel, seconds in message.shares}
    taken = tuple((channel, seconds) for channel, seconds in shares.items() if channel is not None)
    return ContendedChannels(channels, taken) if channels or taken else None


def _representatives(
    distinct: Mapping[int, Message], users: Mapping[int, list[int]]
) -> dict[int, int | None]:
    """For each channel the one that stands for it; nothing where nobody meets. Shares stand for
    equal ones.
    """
    uses: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for key, message in distinct.items():
        for channel in message.channels:
            uses[channel].append((key, 0.0))
        for channel, seconds in message.shares:
            uses[channel].append((key, seconds))
    found: dict[int, int | None] = {}
    first: dict[tuple[tuple[int, float], ...], int | None] = {}
    for channel, by in uses.items():
        same = tuple(by)
        if same not in first:
            shared = any(seconds for _, seconds in by)
            meet = shared or _meet(user for number, _ in by for user in users[number])
            first[same] = channel if meet else None
        found[channel] = first[same]
    return found


def _meet(users: Iterable[int]) -> bool:
    """Whether any two of these could be in flight at once: not where it is one, nor where one lane owns them
    all.
    """
    counted = list(users)
    return len(counted) > 1 and (counted[0] < 0 or len(set(counted)) > 1)
