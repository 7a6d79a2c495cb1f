"""Instances of one model on the devices of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

PREFILL, DECODE = ROLES = ("prefill", "decode")


class InstanceShape(NamedTuple):
    """``pipeline`` stages of ``tensor`` devices each."""

    pipeline: int
    tensor: int

    @property
    def devices(self) -> int:
        return self.pipeline * self.tensor


@dataclass(frozen=True)
class Instance:
    """A whole copy of the model on ``devices``, stage by stage, that begins with the work of its ``role``."""

    role: str
    shape: InstanceShape
    devices: tuple[int, ...]

    def stage(self, place: int) -> tuple[int, ...]:
        """Return the devices of a stage."""
        tensor = self.shape.tensor
        return self.devices[place * tensor : (place + 1) * tensor]

    def stage_nodes(self, devices_per_node: int) -> tuple[int, ...]:
        """Return the node of each stage's first device."""
        return tuple(self.stage(place)[0] // devices_per_node for place in range(self.shape.pipeline))

    def to_json(self) -> dict[str, Any]:
        return {"role": self.role, **self.shape._asdict(), "devices": list(self.devices)}


def instance_fault(instances: Sequence[Instance], devices: int, per_node: int) -> str:
    """What no cluster could make of ``instances``; empty when nothing is."""
    used = [device for one in instances for device in one.devices]
    if len(set(used)) != len(used) or not all(0 <= device < devices for device in used):
        return f"devices {used} are not different ones of {devices}"
    for one in instances:
        if one.role not in ROLES or len(one.devices) != one.shape.devices:
            return f"{one.role} on devices {one.devices} is no {one.shape.pipeline} x {one.shape.tensor}"
        stages = [one.stage(place) for place in range(one.shape.pipeline)]
        if any(len({device // per_node for device in stage}) > 1 for stage in stages):
            return f"a stage of {one.devices} is spread over several nodes"
    roles = {one.role for one in instances}
    if not {PREFILL, DECODE} <= roles:
        return f"there is no instance for {'prompts' if PREFILL not in roles else 'answers'}"
    return ""


def place_instances(
    wanted: Sequence[tuple[str, InstanceShape]], nodes: int, per_node: int
) -> tuple[Instance, ...] | None:
    """Return ``wanted`` on devices, each stage inside a node, the widest stages first; ``None``: no room.

    The order of ``wanted`` is kept.
    """
    free = [list(range(node * per_node, (node + 1) * per_node)) for node in range(nodes)]
    found: dict[int, Instance] = {}
    for place in sorted(range(len(wanted)), key=lambda place: (-wanted[place][1].tensor, place)):
        role, shape = wanted[place]
        devices: list[int] = []
        for _ in range(shape.pipeline):
            node = next((one for one in free if len(one) >= shape.tensor), None)
            if node is None:
                return None
            devices += node[: shape.tensor]
            del node[: shape.tensor]
        found[place] = Instance(role, shape, tuple(devices))
    return tuple(found[place] for place in range(len(wanted)))
