"""The mesh of a parallel plan as people say it: ``DP 32 × TP 2``, and where its groups lie."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from webapp.runs.plan_topology import Nodes

SHORT = {"data": "DP", "pipeline": "PP", "tensor": "TP", "context": "CP", "expert": "EP"}


def mesh_in_words(plan: Mapping[str, Any]) -> str:
    """``DP 32 × TP 2, ZeRO 3``; empty without a plan's workers, ``one device`` where nothing is divided."""
    if not plan.get("workers") or not plan.get("stages"):
        return ""
    sizes = {name: size for name, size in (plan.get("mesh") or _sizes(plan)).items() if size > 1}
    mesh = " × ".join(_axis(name, size) for name, size in sizes.items()) or "one device"
    return f"{mesh}, ZeRO {plan['zero']}" if plan.get("zero") else mesh


def _axis(name: str, size: int) -> str:
    """``DP 32``; a stage that is a mesh of its own: ``64 devices for stage 0``."""
    stage = re.fullmatch(r"stage(\d+)", name)
    return f"{size} devices for stage {stage[1]}" if stage else f"{SHORT.get(name, name)} {size}"


def _sizes(plan: Mapping[str, Any]) -> dict[str, int]:
    """Of a plan that names no axes: replicas of its first stage, workers in a row, devices of one."""
    replicas = len(plan["stages"][0]["workers"])
    deep = round(len(plan["workers"]) / replicas)
    return {"data": replicas, "pipeline": deep, "devices of a stage": len(plan["workers"][0]["devices"])}


def placement_in_words(plan: Mapping[str, Any], nodes: Nodes) -> str:
    """``layers are shared inside a node, gradients go between nodes``; empty on a single node."""
    return ", ".join(_placement(plan, nodes)) if nodes.count > 1 else ""


def _placement(plan: Mapping[str, Any], nodes: Nodes) -> Iterator[str]:
    workers, stages = plan["workers"], plan["stages"]
    devices = [worker["devices"] for worker in workers]
    if len(devices[0]) > 1:
        yield f"layers are shared {_spread(devices, nodes)}"
    replicas = zip(*(stage["workers"] for stage in stages), strict=False)
    pipelines = [[device for worker in one for device in devices[worker]] for one in replicas]
    if len(stages) > 1:
        yield f"stages hand on {_spread(pipelines, nodes)}"
    if any(len(stage["workers"]) > 1 for stage in stages):
        own = [[device for worker in stage["workers"] for device in devices[worker]] for stage in stages]
        yield f"gradients go {_spread(own, nodes)}"


def _spread(groups: Sequence[Sequence[int]], nodes: Nodes) -> str:
    inside = all(len({nodes.of(device) for device in group}) == 1 for group in groups)
    return "inside a node" if inside else "between nodes"
