"""Which operators share a launched kernel.

Waves, merged while that is no longer, unless a skip rule says no.

Rammer's release (NNFusion, ``blockfusion``): members of a wave share a group; more blocks than a threshold
make them use their thrifty kernels; a group is given up when it has one kernel, when each of its kernels
fills the device, or when its plan is no shorter than its kernels one after another. Consecutive groups are
merged where that is shorter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.compilation.interface.blocks import BlockOperator, KernelGrid, KernelGroup, VirtualDevice
from experiments.compilation.policies.rammer.layout import LARGEST_GROUP, alone, laid_out, waves

#: How members get their kernels: the release's threshold on blocks, or the shorter of both plans (the paper).
THRESHOLD, SHORTER = "threshold", "shorter"
#: Blocks of a group beyond which it is crowded: four on each of a V100's 80 multiprocessors.
CROWDED = 4 * 80


@dataclass(frozen=True)
class Grouping:
    """``merge`` consecutive groups; ``choice`` of kernels is one of the two above."""

    machine: VirtualDevice
    choice: str = SHORTER
    merge: bool = True
    crowded: int = CROWDED

    def groups(self, operators: Sequence[BlockOperator]) -> list[KernelGroup]:
        """Return the whole program, in order of launching."""
        pieces = [piece for wave in waves(operators) for piece in self._pieces(wave)]
        merged = self._merge_pieces(pieces) if self.merge else pieces
        return [group for piece in merged for group in self._settle(piece)]

    @staticmethod
    def _pieces(wave: Sequence[BlockOperator]) -> list[list[BlockOperator]]:
        """Return a wave in parts of one group's size.

        What is not made of blocks is a part of its own, first.
        """
        whole = [[operator] for operator in wave if not operator.divisible]
        rest = [operator for operator in wave if operator.divisible]
        return whole + [rest[at : at + LARGEST_GROUP] for at in range(0, len(rest), LARGEST_GROUP)]

    def _merge_pieces(self, pieces: Sequence[list[BlockOperator]]) -> list[list[BlockOperator]]:
        """Each piece joined to the one before where the joint plan is shorter than the two."""
        found: list[list[BlockOperator]] = []
        for piece in pieces:
            joint = found[-1] + piece if found else piece
            if found and self._may_join(joint) and self._saves(found[-1], piece):
                found[-1] = joint
            else:
                found.append(piece)
        return found

    @staticmethod
    def _may_join(joint: Sequence[BlockOperator]) -> bool:
        return len(joint) <= LARGEST_GROUP and all(operator.divisible for operator in joint)

    def _saves(self, before: Sequence[BlockOperator], piece: Sequence[BlockOperator]) -> bool:
        separate = sum(self.cost(group) for part in (before, piece) for group in self._settle(part))
        return self.cost(self.plan([*before, *piece])) < separate

    def cost(self, group: KernelGroup) -> float:
        """Return seconds of one group with its launch."""
        return self.machine.launch + group.seconds

    def plan(self, members: Sequence[BlockOperator]) -> KernelGroup:
        """Return the members in company, with the kernels that the choice gives them."""
        fast = laid_out(members, {member.name: member.fast for member in members}, self.machine)
        blocks = sum(member.fast.blocks for member in members)
        if self.choice == THRESHOLD and blocks <= self.crowded:
            return fast
        thrifty = laid_out(members, {member.name: member.thrifty for member in members}, self.machine)
        if self.choice == THRESHOLD:
            return thrifty
        return min(fast, thrifty, key=lambda group: group.seconds)

    def _settle(self, members: Sequence[BlockOperator]) -> list[KernelGroup]:
        """Return the members' group, or each alone where a skip rule holds."""
        single = [alone(member, self.machine) for member in members]
        if len(members) == 1:
            return [alone(members[0], self.machine, "the only kernel of its group")]
        if all(_fills(member.fast, self.machine) for member in members):
            return _given_up(members, self.machine, "every kernel of the group fills the device")
        planned = self.plan(members)
        if self.cost(planned) >= sum(self.cost(group) for group in single):
            return _given_up(members, self.machine, "in company it takes no less than one after another")
        return [planned]


def _fills(kernel: KernelGrid, machine: VirtualDevice) -> bool:
    return kernel.blocks >= machine.units


def _given_up(members: Sequence[BlockOperator], machine: VirtualDevice, why: str) -> list[KernelGroup]:
    return [alone(member, machine, why) for member in members]
