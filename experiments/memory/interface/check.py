"""``violations``: the one checker of memory plans, used by tests, before a result is stored, and on the run
page.

It walks ops and moves in order and follows where each tensor's content is, without times: what can be wrong
with a plan whatever the speed of the hardware. Whether the plan fits in time and space is the simulator's
answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

import numpy as np

from experiments.core.errors import BadInput
from experiments.memory.interface import plan as moves
from experiments.memory.interface.lineage import Lineage
from experiments.memory.interface.machine import MemoryMachine
from experiments.memory.interface.plan import DEVICE, TIERS, InPlace, MemoryMove, MemoryPlan, OnHost
from experiments.memory.interface.release import Release
from experiments.memory.interface.space import MemoryPool, Paging
from experiments.memory.interface.space_check import hint_faults, paging_faults, pool_faults
from experiments.memory.interface.tier_bytes import BYTE_ADDRESSABLE, TierBytes
from experiments.memory.interface.transform import transformed
from experiments.workloads.step import Step

#: The walk stops after so many complaints: one early mistake makes many later ones.
MOST = 20
#: How a complaint about the capacity of a tier begins.
FULL = "capacity: "
#: States of a tensor besides ``DEVICE`` and the tiers.
UNBORN, GONE, DEAD, ENCODED = "not yet produced", "dropped", "dead", "compressed"


def violations(plan: MemoryPlan, step: Step, machine: MemoryMachine) -> list[str]:
    """Return every reason why ``plan`` cannot be carried out on ``step``.

    There are at most ``MOST``, in step order.
    """
    if plan.reactive and isinstance(plan.space, Paging | Release):
        return [f"reactive: {plan.space.model} decides itself what leaves"]
    if isinstance(plan.space, Release):
        return hint_faults(plan, step)[:MOST]
    try:
        step = transformed(step, plan)
    except BadInput as error:
        return [str(error)]
    if isinstance(plan.space, Paging):
        return paging_faults(plan.space, plan.moves, step)[:MOST]
    faults = pool_faults(plan.space, step) if isinstance(plan.space, MemoryPool) else []
    return [*faults, *_Walk(plan, step, machine).run()][:MOST]


class _Walk:
    """``where[t]`` is DEVICE, a tier or one of the states above; ``copy[t]`` the tier that holds a copy, if
    any.
    """

    def __init__(self, plan: MemoryPlan, step: Step, machine: MemoryMachine) -> None:
        self.plan, self.step, self.machine = plan, step, machine
        self.lineage = Lineage(step)
        self.complaints: list[str] = []
        persistent = step.persistent
        self.where = [DEVICE if persistent[t] else UNBORN for t in range(len(step.tensors))]
        self.start = dict(enumerate(self.where))
        self.copy: dict[int, str] = {}
        self.kept: set[int] = set()
        self.copied_at_start: dict[int, str] = {}
        self.elsewhere: dict[int, OnHost | InPlace] = {}
        self.tier_bytes = TierBytes(step, machine)
        self.until: dict[int, int] = {}
        self.encoded: set[int] = set()
        self.last = last = self.lineage.last_need(plan)
        self.dying = defaultdict(list)
        for tensor in np.nonzero(~persistent)[0].tolist():
            self.dying[int(last[tensor])].append(tensor)
        self.carry: Mapping[str, Callable[..., None]] = {
            "offload": self._offload,
            "prefetch": self._prefetch,
            "wait": self._wait,
            "drop": self._drop,
            "recompute": self._recompute,
            "compress": self._compress,
            "decompress": self._decompress,
            "log": self._log,
            "place": self._place,
            "algorithm": self._algorithm,
            "on_host": self._elsewhere,
            "in_place": self._elsewhere,
        }

    def run(self) -> list[str]:
        by_op: dict[int, list[MemoryMove]] = defaultdict(list)
        for move in self.plan.moves:
            if not 0 <= move.at <= len(self.step.ops):
                return [f"{move.action} at op {move.at} of {len(self.step.ops)}"]
            if not 0 <= getattr(move, "tensor", 0) < len(self.step.tensors):
                return [f"{move.action} at op {move.at} names tensor {getattr(move, 'tensor', 0)}"]
            by_op[move.at].append(move)
        by_op[0].sort(
            key=lambda move: not isinstance(move, moves.PlaceTensor)
        )  # where the step begins, before any move
        for op in range(len(self.step.ops) + 1):
            for move in by_op[op]:
                self.carry[move.action](move)
            for tensor in self.dying[2 * op]:
                self._forget(tensor)
            if op < len(self.step.ops) and len(self.complaints) < MOST:
                self._op(op)
        self._end()
        return self.complaints

    def _say(self, move: MemoryMove, complaint: str) -> None:
        self.complaints.append(f"{move.action} before op {move.at}: {complaint}")

    def _name(self, tensor: int) -> str:
        return f"tensor {tensor} ({self.step.tensors.name[tensor]})"

    def _op(self, op: int) -> None:
        move = self.elsewhere.get(op)
        if isinstance(move, OnHost):
            self._host_op(op, move)
        elif move:
            self._in_place(move)
            self._device_op(op, move.tensors)
        else:
            self._device_op(op)
        self._leave(op)
        for tensor in self.dying[2 * op + 1]:
            self._forget(tensor)

    def _host_op(self, op: int, move: OnHost) -> None:
        """What the op reads has a copy on the host, what it writes is there and nowhere else afterwards.

        What is resident on the tier that the op streams from is as good, and stays there.
        """
        born = {t for t in self.step.touched[op].tolist() if self.where[t] == UNBORN}
        for tensor in self.lineage.reads[op]:
            if tensor not in born and self.copy.get(tensor) not in ("host", move.through):
                state = self._state(tensor)
                self._say(move, f"{self._name(tensor)} has no copy on the host, it is {state}")
        for tensor in (*born, *self.lineage.writes[op]):
            if tensor in self.until:
                self._say(move, f"{self._name(tensor)} is written while it leaves")
            self.kept.discard(tensor)
            home = move.through if self.copy.get(tensor) == move.through else "host"
            self.where[tensor] = home
            self._copy_on(tensor, home, move)

    def _in_place(self, move: InPlace) -> None:
        for tensor in move.tensors:
            if self.where[tensor] == UNBORN:
                self.where[tensor] = move.tier
                self._copy_on(tensor, move.tier, move)
            elif self.where[tensor] not in BYTE_ADDRESSABLE:
                self._say(move, f"{self._name(tensor)} is {self._state(tensor)}")

    def _device_op(self, op: int, elsewhere: tuple[int, ...] = ()) -> None:
        for tensor in self.step.touched[op].tolist():
            if tensor in elsewhere:
                continue
            state = self.where[tensor]
            if state == UNBORN:
                self.where[tensor] = DEVICE
            elif state in TIERS and self.plan.reactive:
                self._arrive(tensor)
            elif state != DEVICE:
                self.complaints.append(
                    f"op {op} ({self.step.ops.name[op]}) needs {self._name(tensor)}, which is {state}"
                )
            if op > self.until.get(tensor, op) or (tensor in self.until and tensor in self.step.outputs[op]):
                self.complaints.append(
                    f"op {op} ({self.step.ops.name[op]}) uses {self._name(tensor)} while it leaves"
                )
        for tensor in self.kept.intersection(self.lineage.writes[op]):
            self._void(tensor)

    def _leave(self, op: int) -> None:
        for tensor in [t for t, until in self.until.items() if until <= op]:
            self.where[tensor] = self.copy[tensor]
            del self.until[tensor]

    def _forget(self, tensor: int) -> None:
        self.where[tensor] = DEAD
        self.until.pop(tensor, None)
        self._void(tensor)

    def _void(self, tensor: int) -> None:
        """There is no copy off the device any more."""
        self.kept.discard(tensor)
        if tensor in self.copy:
            self.tier_bytes.take_away(tensor)
            del self.copy[tensor]

    def _arrive(self, tensor: int, keep: bool = False) -> None:
        self.where[tensor] = ENCODED if tensor in self.encoded else DEVICE
        if keep:
            self.kept.add(tensor)
        else:
            self._void(tensor)

    def _offload(self, move: moves.Offload) -> None:
        if self.where[move.tensor] not in (DEVICE, ENCODED) or move.tensor in self.until:
            self._say(move, f"{self._name(move.tensor)} is {self._state(move.tensor)}")
            return
        if self.last[move.tensor] < 2 * move.at and not self.step.persistent[move.tensor]:
            self._say(move, f"{self._name(move.tensor)} is not needed any more")
            return
        if move.tier not in TIERS or move.ratio < 1 or not move.at - 1 <= move.until < len(self.step.ops):
            self._say(move, f"tier {move.tier!r}, ratio {move.ratio}, until {move.until}")
            return
        if move.tensor in self.kept and self.copy[move.tensor] == move.tier:
            self.kept.discard(move.tensor)
        else:
            self._copy_on(move.tensor, move.tier, move, move.ratio)
        self.until[move.tensor] = move.until
        self._leave(move.at - 1)

    def _state(self, tensor: int) -> str:
        return "leaving already" if tensor in self.until else self.where[tensor]

    def _copy_on(self, tensor: int, tier: str, move: MemoryMove, ratio: float = 1.0) -> None:
        self._void(tensor)
        if self.machine.tier_bytes(tier) <= 0:
            self.complaints.append(f"{FULL}{move.action} before op {move.at}: there is no {tier}")
        elif overfull := self.tier_bytes.put(tensor, tier, ratio):
            self.complaints.append(f"{FULL}{move.action} before op {move.at}: {overfull}")
        self.copy[tensor] = tier

    def _prefetch(self, move: moves.Prefetch) -> None:
        if self.where[move.tensor] not in TIERS:
            self._say(move, f"{self._name(move.tensor)} is {self._state(move.tensor)}, not on a tier")
            return
        self._arrive(move.tensor, move.keep)

    def _wait(self, move: moves.WaitForCopy) -> None:
        return None  # waiting for a copy that has ended, or for none, costs nothing and breaks nothing

    def _drop(self, move: moves.Drop) -> None:
        if self.where[move.tensor] != DEVICE or move.tensor in self.until:
            self._say(move, f"{self._name(move.tensor)} is {self._state(move.tensor)}")
            return
        self._void(move.tensor)
        self.where[move.tensor] = GONE

    def _recompute(self, move: moves.Recompute) -> None:
        if any(not 0 <= op < move.at for op in move.ops):
            self._say(move, "an op that has not run yet")
            return
        concerned = {*move.keep, *(tensor for op in move.ops for tensor in self.step.touched[op].tolist())}
        here = {tensor for tensor in concerned if self.where[tensor] == DEVICE}
        self.complaints += [
            f"recompute before op {move.at}: {text}" for text in self.lineage.faults(move, here)
        ]
        made = dict.fromkeys(tensor for op in move.ops for tensor in self.lineage.writes[op])
        for tensor in made:
            if self.where[tensor] in TIERS and not self.lineage.persistent[tensor]:
                self._say(move, f"makes {self._name(tensor)} again, which is {self.where[tensor]}")
        for tensor in move.keep:
            self.where[tensor] = DEVICE

    def _compress(self, move: moves.Compress) -> None:
        if self._state(move.tensor) != DEVICE or move.ratio < 1 or move.seconds < 0:
            self._say(move, f"{self._name(move.tensor)} is {self._state(move.tensor)}, ratio {move.ratio}")
            return
        self._void(move.tensor)
        self.where[move.tensor] = ENCODED
        self.encoded.add(move.tensor)

    def _log(self, move: moves.Log) -> None:
        if self.where[move.tensor] not in (DEVICE, *TIERS) or move.tier not in TIERS or move.bytes < 0:
            what = f"{self._name(move.tensor)} is {self._state(move.tensor)}"
            self._say(move, f"{what}; {move.bytes} bytes to {move.tier!r}")

    def _decompress(self, move: moves.Decompress) -> None:
        if self._state(move.tensor) != ENCODED:
            self._say(move, f"{self._name(move.tensor)} is {self._state(move.tensor)}")
            return
        self.where[move.tensor] = DEVICE
        self.encoded.discard(move.tensor)

    def _place(self, move: moves.PlaceTensor) -> None:
        if move.at != 0 or move.tier not in TIERS or not self.step.persistent[move.tensor]:
            self._say(
                move, f"{self._name(move.tensor)} on {move.tier!r}: only persistent tensors, before op 0"
            )
            return
        if self.start[move.tensor] != DEVICE or self.where[move.tensor] != DEVICE:
            self._say(move, f"{self._name(move.tensor)} is {self._state(move.tensor)} already")
            return
        self._copy_on(move.tensor, move.tier, move)
        if move.copy:
            self.kept.add(move.tensor)
            self.copied_at_start[move.tensor] = move.tier
        else:
            self.where[move.tensor] = self.start[move.tensor] = move.tier

    def _algorithm(self, move: moves.Algorithm) -> None:
        if move.at >= len(self.step.ops) or move.seconds < 0 or move.workspace < 0:
            self._say(move, f"{move.seconds} s and {move.workspace} bytes")

    def _elsewhere(self, move: OnHost | InPlace) -> None:
        if move.at >= len(self.step.ops) or move.seconds < 0:
            self._say(move, f"{move.seconds} s")
            return
        if isinstance(move, OnHost) and move.through not in TIERS:
            self._say(move, f"through {move.through!r}")
            return
        if move.at in self.elsewhere:
            self._say(move, "the op runs elsewhere already")
        if isinstance(move, InPlace):
            touched = set(self.step.touched[move.at].tolist())
            strange = [tensor for tensor in move.tensors if tensor not in touched]
            if strange or move.tier not in BYTE_ADDRESSABLE:
                self._say(move, f"tier {move.tier!r}; the op does not use tensors {strange}")
                return
        self.elsewhere[move.at] = move

    def _end(self) -> None:
        """A step must be repeatable: persistent tensors end where they began."""
        self._leave(len(self.step.ops))
        for tensor in np.nonzero(self.step.persistent)[0].tolist():
            if self.where[tensor] != self.start[tensor]:
                self.complaints.append(
                    f"{self._name(tensor)} begins on {self.start[tensor]} and ends {self.where[tensor]}"
                )
        for tensor, tier in self.copied_at_start.items():
            if tensor not in self.kept or self.copy[tensor] != tier:
                self.complaints.append(f"{self._name(tensor)} begins with a copy on {tier} and ends without")
