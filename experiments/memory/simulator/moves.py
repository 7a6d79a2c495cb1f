"""The moves of a plan: each a function over a run. ``CARRY`` takes time between ops, ``SETTINGS`` none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from experiments.core.errors import Infeasible
from experiments.memory.interface.plan import (
    Algorithm,
    Compress,
    Decompress,
    Drop,
    InPlace,
    Log,
    MemoryMove,
    Offload,
    OnHost,
    PlaceTensor,
    Prefetch,
    Recompute,
    WaitForCopy,
)
from experiments.memory.simulator.compute_lane import Process
from experiments.memory.simulator.pools.allocator import SCRATCH
from experiments.memory.simulator.tier_copies import AWAY, COMING, DEVICE, GONE, QUEUED, STATES, UNBORN

if TYPE_CHECKING:
    from experiments.memory.simulator.run import StepRun


def offload(run: StepRun, move: Offload) -> Process:
    """Start the copy to the tier; the device bytes leave at once or after the last op that reads them."""
    copies, tensor = run.copies, move.tensor
    yield from bring(run, tensor, "offload")
    copies.start_copy(tensor, move.tier, move.ratio)
    if run.synchronous and copies.copied[tensor] > run.clock.now:
        yield from run.lane.stall_until(copies.copied[tensor], "synchronization")
    if move.until >= move.at:
        copies.departing.add(tensor)
        run.until[move.until].append(tensor)
    else:
        copies.release([tensor])


def prefetch(run: StepRun, move: Prefetch) -> Process:
    """Queue the copy back: it starts when it finds space."""
    copies, tensor = run.copies, move.tensor
    if copies.state[tensor] != AWAY:
        raise cannot(run, "prefetch", tensor)
    copies.state[tensor] = QUEUED
    if move.keep:
        copies.kept.add(tensor)
    if run.synchronous:
        yield from run.residency.fetch_now(tensor, ())
        yield from run.lane.stall_until(copies.arrival[tensor], "synchronization")
    else:
        copies.queue.append(tensor)


def wait(run: StepRun, move: WaitForCopy) -> Process:
    """Only for a copy in flight: a prefetch that still lacks space is not waited for, it might never come."""
    copies, tensor, clock = run.copies, move.tensor, run.clock
    if move.at == len(run.seconds):
        copies.admit()
    ends = copies.arrival if copies.state[tensor] == COMING else copies.copied
    if copies.state[tensor] == QUEUED or ends[tensor] <= clock.now:
        yield from run.lane.settle(clock.now)
        return
    made = min(copies.host_made.get(tensor, 0.0), ends[tensor])
    if made > clock.now:
        yield from run.lane.stall_until(made, "host")
    while ends[tensor] > clock.now:
        yield from run.lane.stall_until(ends[tensor], "synchronization")


def drop(run: StepRun, move: Drop) -> Process:
    """Discard the tensor, and a copy of it that was kept on its tier."""
    yield from bring(run, move.tensor, "drop")
    run.memory.clear(move.tensor)
    run.copies.void(move.tensor)
    run.copies.state[move.tensor] = GONE


def log(run: StepRun, move: Log) -> Process:
    """Write the log while compute goes on; a copy of the tensor that is in flight there counts as well."""
    copies, tensor, tier = run.copies, move.tensor, move.tier
    if copies.state[tensor] not in (DEVICE, AWAY):
        raise cannot(run, "log", tensor)
    ready = max(run.clock.now, copies.copied[tensor])
    if copies.state[tensor] == AWAY and copies.away[tensor][0] == tier:
        end = copies.channels.beyond(move.bytes, tier, "out", ready)
    else:
        end = copies.channels.out(move.bytes, tier, ready)
    copies.take_on(tier, move.bytes)
    run.logged.append((move.bytes, tier))
    copies.copied[tensor] = end
    yield run.clock.now


def recompute(run: StepRun, move: Recompute) -> Process:
    """Run the ops of ``move`` again, each with what is resident when the first begins."""
    last = {t: op for op in move.ops for t in run.s.touched[op]}
    here = {t for t in last if run.copies.state[t] in (DEVICE, COMING, QUEUED)}
    resident = here.union(move.keep)
    for op in move.ops:
        yield from _rerun(run, op, here)
        ending = [t for t, end in last.items() if end == op and t not in resident]
        run.copies.free([t for t in ending if run.copies.state[t] == DEVICE])
    run.recompute_flops += sum([run.s.flops[op] for op in move.ops])


def _rerun(run: StepRun, op: int, here: set[int]) -> Process:
    """Run ``op`` again: new outputs, and second copies of those still ``here`` while it runs."""
    s, state, residency = run.s, run.copies.state, run.residency
    touched = s.touched[op]
    coming = yield from residency.gather([t for t in touched if t in here])
    written = list(dict.fromkeys(s.lineage.writes[op]))
    new = [t for t in written if t not in here and state[t] != DEVICE]
    scratch = sum([run.memory.size[t] for t in written if t in here]) + s.workspace[op]
    address = yield from residency.claim(new, scratch, touched)
    run.copies.admit()
    yield from run.lane.arrive(coming)
    for tensor in touched:
        if state[tensor] == COMING:
            state[tensor] = DEVICE
    yield from run.lane.compute(s.seconds[op], "recompute", op)
    run.recompute_time += s.seconds[op]
    if scratch:
        run.memory.give(SCRATCH, scratch, address)


def compress(run: StepRun, move: Compress) -> Process:
    """Encode the tensor on the device."""
    size = max(1, round(run.s.sizes[move.tensor] / move.ratio))
    yield from _recode(run, move.tensor, size, move.seconds)


def decompress(run: StepRun, move: Decompress) -> Process:
    """Decode the tensor on the device to its full size."""
    yield from _recode(run, move.tensor, run.s.sizes[move.tensor], move.seconds)


def _recode(run: StepRun, tensor: int, size: int, seconds: float) -> Process:
    """Both forms are on the device while the codec runs; the old one counts as its scratch."""
    memory, residency = run.memory, run.residency
    coming = yield from residency.gather([tensor])
    before, address = memory.size[tensor], memory.address[tensor]
    memory.size[tensor] = size
    yield from residency.claim([tensor], 0, [tensor])
    run.recorder.change(tensor, -before)
    run.recorder.change(SCRATCH, before)
    yield from run.lane.arrive(coming)
    yield from run.lane.compute(seconds, "codec", tensor)
    run.codec_time += seconds
    run.recorder.change(SCRATCH, -before)
    run.recorder.change(tensor, before)
    memory.give(tensor, before, address)
    run.copies.void(tensor)


def bring(run: StepRun, tensor: int, what: str) -> Process:
    """Complete a prefetch in flight, or one that has found no space yet, before another move."""
    state = run.copies.state
    if state[tensor] == QUEUED:
        yield from run.residency.fetch_now(tensor, (tensor,))
    if state[tensor] == COMING:
        yield from run.lane.arrive([tensor])
        state[tensor] = DEVICE
    if state[tensor] != DEVICE:
        raise cannot(run, what, tensor)


def cannot(run: StepRun, what: str, tensor: int) -> Infeasible:
    """A complaint that a move finds its tensor in the wrong state."""
    state = STATES[run.copies.state[tensor]]
    return Infeasible(f"cannot {what} tensor {tensor}: {state}", run.clock.place())


def settle_in_place(run: StepRun, move: InPlace) -> Process:
    """Wait until the tensors of ``move`` are on their tier; those that are not born are made there."""
    copies, state = run.copies, run.copies.state
    for tensor in move.tensors:
        if state[tensor] == UNBORN:
            copies.store(tensor, move.tier, 1.0)
            state[tensor] = AWAY
        elif state[tensor] != AWAY:
            what = f"cannot use tensor {tensor} in place: {STATES[state[tensor]]}"
            raise Infeasible(what, run.clock.place())
        while copies.copied[tensor] > run.clock.now:
            yield from run.lane.stall_until(copies.copied[tensor], "transfer")


def set_algorithm(run: StepRun, move: Algorithm) -> None:
    """The op runs another kernel."""
    run.seconds[move.at], run.workspace[move.at] = move.seconds, move.workspace


def set_place(run: StepRun, move: PlaceTensor) -> None:
    """The step begins with the tensor on its tier."""
    run.placed[move.tensor] = move


def set_on_host(run: StepRun, move: OnHost) -> None:
    """The op runs on the host's processor."""
    run.seconds[move.at] = move.seconds
    run.host.ops[move.at] = move


def set_in_place(run: StepRun, move: InPlace) -> None:
    """The op needs the tensors of ``move`` where they are resident, and the others on the device."""
    run.seconds[move.at] = move.seconds
    run.in_place[move.at] = move
    run.touched[move.at] = [t for t in run.s.touched[move.at] if t not in move.tensors]


CARRY: dict[type[MemoryMove], Callable[[Any, Any], Process]] = {
    Offload: offload,
    Prefetch: prefetch,
    WaitForCopy: wait,
    Drop: drop,
    Recompute: recompute,
    Compress: compress,
    Decompress: decompress,
    Log: log,
}
#: What holds for the whole step, in the order listed in the plan.
SETTINGS: dict[type[MemoryMove], Callable[[Any, Any], None]] = {
    Algorithm: set_algorithm,
    PlaceTensor: set_place,
    OnHost: set_on_host,
    InPlace: set_in_place,
}


def carry_out(run: StepRun, moves: Sequence[MemoryMove], op: int) -> Process:
    """The moves at ``op``, in the order listed."""
    run.clock.at = op
    for move in moves:
        yield from CARRY[type(move)](run, move)
