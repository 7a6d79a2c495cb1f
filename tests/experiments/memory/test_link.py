"""A link that devices share: what it foresees whenever a transfer is added is what then happens.

The truth is played from the beginning, all transfers known, by steps of time in which nothing changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.memory.interface import CopyRate
from experiments.memory.simulator.link import NEVER, LinkTransfer, SharedLink


@dataclass
class Sent:
    """A transfer as drawn: seconds after the one before, and which of its device's it follows."""

    pause: float
    device: int
    way: str
    size: float
    late: float
    follows: int | None


#: Pauses are no sums of the times that transfers take: moments that are the same by chance have no order.
SOME = st.builds(
    Sent,
    pause=st.sampled_from([0.0, 0.0, 0.3141592, 1.7320508]),
    device=st.integers(0, 2),
    way=st.sampled_from(["out", "back"]),
    size=st.sampled_from([0.25, 1.0, 3.0]),
    late=st.sampled_from([0.0, 0.5]),
    follows=st.none() | st.integers(0, 20),
)


def link_machine(duplex: bool) -> Any:
    return SimpleNamespace(out=CopyRate(2.0, 0.1), back=CopyRate(1.0, 0.05), duplex=duplex)


def transfers_of(drawn: list[Sent], machine: Any) -> list[tuple[float, LinkTransfer]]:
    now, found = 0.0, []
    for sent in drawn:
        now += sent.pause
        own = [one for _, one in found if one.device == sent.device]
        after = own[sent.follows % len(own)] if own and sent.follows is not None else None
        latency = (machine.out if sent.way == "out" else machine.back).latency
        ready = now + sent.late
        found.append((now, LinkTransfer(sent.device, sent.way, latency, sent.size, ready, 0.0, after)))
    return found


def truth(sent: list[tuple[float, LinkTransfer]], machine: Any, turns: bool) -> list[float]:
    """When each has gone: devices' queues in the order sent, every change of what moves a step of time."""
    rates = {"out": machine.out.bandwidth, "back": machine.back.bandwidth}
    everyone = [one for _, one in sent]
    wait, left = [one.latency for one in everyone], [one.size for one in everyone]
    gone, since, token, now = [NEVER] * len(sent), [NEVER] * len(sent), dict[str, int](), 0.0
    lane = [one.way if machine.duplex else "both" for one in everyone]
    while NEVER in gone:
        heads: dict[tuple[int, str], int] = {}
        for index, (at, one) in enumerate(sent):
            if at <= now and gone[index] == NEVER:
                heads.setdefault((one.device, lane[index]), index)
        may = {}
        for index in heads.values():
            after = everyone[index].after
            before = 0.0 if after is None else gone[everyone.index(after)]
            may[index] = max(everyone[index].ready, before)
        ready = [index for index, at in may.items() if at <= now]
        for index in ready:
            since[index] = min(since[index], now)
        for index in sorted(ready, key=lambda i: (since[i], everyone[i].device)):
            token.setdefault(lane[index], index)
        moving = sorted(token.values()) if turns else ready
        sending = [index for index in moving if not wait[index]]
        share = {
            index: rates[everyone[index].way] / sum(lane[other] == lane[index] for other in sending)
            for index in sending
        }
        over = {index: wait[index] or left[index] / share[index] for index in moving}
        news = [at for at, _ in sent if at > now] + [at for at in may.values() if now < at < NEVER]
        step = min([*over.values(), *(at - now for at in news)])
        now += step
        for index in moving:
            if wait[index]:
                wait[index] = 0.0 if over[index] == step else wait[index] - step
            else:
                left[index] = 0.0 if over[index] == step else left[index] - step * share[index]
            if not wait[index] and left[index] < 1e-12:
                gone[index] = now
                token = {name: holder for name, holder in token.items() if holder != index}
    return gone


@given(st.lists(SOME, min_size=1, max_size=25), st.booleans(), st.sampled_from(["fair", "turns"]))
@settings(max_examples=150)
def test_what_is_foreseen_at_last_is_what_happens(drawn: list[Sent], duplex: bool, discipline: str) -> None:
    machine = link_machine(duplex)
    sent = transfers_of(drawn, machine)
    link = SharedLink(machine, 3, discipline)
    for now, transfer in sent:
        link.send(transfer, now)
    happened = truth(sent, machine, discipline == "turns")
    assert [one.gone for _, one in sent] == pytest.approx(happened, rel=1e-9)


@given(st.lists(SOME, min_size=2, max_size=25), st.booleans(), st.sampled_from(["fair", "turns"]))
@settings(max_examples=100)
def test_every_transfer_that_ends_at_another_time_is_told(
    drawn: list[Sent], duplex: bool, discipline: str
) -> None:
    machine = link_machine(duplex)
    sent = transfers_of(drawn, machine)
    link = SharedLink(machine, 3, discipline)
    known: dict[LinkTransfer, float] = {}
    for number, (now, transfer) in enumerate(sent):
        told = {one: one.end for one in link.send(transfer, now)}
        assert transfer in told
        ends = truth(sent[: number + 1], machine, discipline == "turns")
        known |= told
        assert [known[one] for _, one in sent[: number + 1]] == pytest.approx(ends, rel=1e-9)
