"""The one checker of serving plans: the simulator asks it of each batch, contract tests and the run of all
requests.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from experiments.serving.interface.batch import Batch
from experiments.serving.interface.plan import BlockLog, Served, ServingPlan
from experiments.workloads.requests import RequestTrace

#: Complaints listed in full; the rest are counted.
LISTED = 20
TOLERANCE = 1e-9


def violations(plan: ServingPlan, trace: RequestTrace, kv_slots: int) -> list[str]:
    """What is impossible about ``plan`` on an engine with ``kv_slots``; empty when nothing is."""
    memory = _reservations(plan, kv_slots) if plan.memory is None else _blocks(plan, trace, plan.memory)
    found = [*outcome_faults(plan, trace), *memory]
    more = len(found) - LISTED
    return found if more <= 0 else [*found[:LISTED], f"and {more} more"]


def batch_fault(batch: Batch) -> str:
    """What no engine could run about ``batch``, whatever it serves; empty when nothing is."""
    if not batch.requests:
        return "is empty"
    if len(set(batch.requests)) < len(batch.requests):
        return "has a request twice"
    if not len(batch.requests) == len(batch.tokens) == len(batch.contexts):
        return (
            f"has {len(batch.requests)} requests, {len(batch.tokens)} tokens and {len(batch.contexts)} "
            "contexts"
        )
    if batch.steps < 1 or batch.micro_batch < 0:
        return f"is to run {batch.steps} times in chunks of {batch.micro_batch}"
    return ""


def outcome_faults(plan: ServingPlan, trace: RequestTrace) -> Iterator[str]:
    """What is impossible about the times and tokens of requests."""
    requests = [served.request for served in plan.served]
    if requests != list(range(len(trace))):
        yield f"{len(requests)} outcomes are reported for {len(trace)} requests"
        return
    for served, arrival in zip(plan.served, trace.arrival.tolist(), strict=True):
        if served.rejected and not math.isnan(served.answered):
            yield f"request {served.request} is rejected and answered"
        times = [arrival, served.admitted, served.first_token, served.last_token, served.answered]
        happened = [time for time in times if not math.isnan(time)]
        if any(later < earlier - TOLERANCE for earlier, later in pairwise(happened)):
            yield f"request {served.request} goes back in time: {', '.join(f'{t:g}' for t in happened)} s"
        yield from _token_count(served, trace)
        if served.computed > served.slots:
            yield (
                f"request {served.request} has keys and values of {served.computed} tokens in {served.slots} "
                "slots"
            )


def _token_count(served: Served, trace: RequestTrace) -> Iterator[str]:
    """All of the prompt and all of the output but its last token, which is never fed back."""
    wanted = int(trace.prompt[served.request] + trace.output[served.request]) - 1
    if not math.isnan(served.answered) and served.computed != wanted:
        yield f"request {served.request} is answered after {served.computed} tokens instead of {wanted}"


def _blocks(plan: ServingPlan, trace: RequestTrace, log: BlockLog) -> Iterator[str]:
    """Blocks in use never exceed those there are, and all are free once everybody is answered."""
    for row, blocks in zip(plan.iterations, log.passes, strict=True):
        if blocks.used + blocks.cached > log.total or blocks.used < 1:
            yield f"{blocks.used} used and {blocks.cached} cached blocks of {log.total} at {row.start:g} s"
            break
    ended = sum(served.rejected or not math.isnan(served.answered) for served in plan.served)
    if ended == len(trace) and log.held_at_end:
        yield f"{log.held_at_end} blocks are held after the last answer"
    largest = int((trace.prompt + trace.output).max())
    for served in plan.served:
        if served.slots > -(-largest // log.size) * log.size:
            yield f"request {served.request} held {served.slots} slots"


def _reservations(plan: ServingPlan, kv_slots: int) -> Iterator[str]:
    """Slots held from admission to answer never exceed the engine's."""
    held = [(s.admitted, s.answered, s.slots) for s in plan.served if not math.isnan(s.admitted)]
    if not held:
        return
    start, end, slots = np.array(held, np.float64).T
    closed = ~np.isnan(end)
    times = np.concatenate((start, end[closed]))
    change = np.concatenate((slots, -slots[closed]))
    order = np.lexsort((change, times))
    used = np.cumsum(change[order])
    for row in np.flatnonzero(used > kv_slots)[:1]:
        yield f"{used[row]:g} KV slots are reserved at {times[order][row]:g} s, the engine has {kv_slots}"
