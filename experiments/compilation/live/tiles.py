"""Constructed tiles carried out.

Each product of the graph by the Triton kernel with the blocks of its tile.

Only on a GPU whose sheet names its units. Other operators stay with torch: their tiles are priced, not
compiled.
"""

from __future__ import annotations

import torch

from experiments.compilation.interface import Graph, GraphNode, Recipe, refuse
from experiments.compilation.interface.architecture import Architecture
from experiments.compilation.interface.tiles import TilePolicy, violations
from experiments.compilation.live.backends.base import Task, unsupported_backend
from experiments.compilation.live.launch_blocks import launch_blocks
from experiments.compilation.planning.tiles.from_graph import translate
from experiments.core.progress import Progress, silent
from experiments.hardware import library
from experiments.hardware.parts import Device

KERNELS = {
    "aten.linear.default": "tiled_linear",
    "aten.mm.default": "tiled_matmul",
    "aten.matmul.default": "tiled_matmul",
}
TYPES = ("float32", "float16", "bfloat16")


def recipe_of(policy: TilePolicy, task: Task, progress: Progress = silent) -> Recipe:
    """Return the policy's tiles for this host's GPU.

    ``Infeasible`` where there is none, or none whose units are known.
    """
    if task.device != "cuda":
        raise unsupported_backend(
            "tiles are for a GPU's units; a simulated run prices them on a named one", policy.name
        )
    name = torch.cuda.get_device_name()
    sheet = sheet_of(name, torch.cuda.get_device_properties(0).total_memory)
    if sheet is None:
        raise unsupported_backend(f"no sheet says what units {name} has", policy.name)
    return tile_recipe(policy, task.graph, Architecture(sheet), progress)


def sheet_of(name: str, memory: int) -> Device | None:
    """Return the sheet with units whose first word stands in torch's ``name`` of a GPU.

    Of several that of nearest memory.
    """
    words = name.lower().replace("-", " ").split()
    devices = [library.device(sheet, "local").device for sheet in library.names()]
    known = [device for device in devices if device.units and device.name.split("-")[0] in words]
    return min(known, key=lambda device: abs(device.memory_bytes - memory), default=None)


def tile_recipe(policy: TilePolicy, graph: Graph, on: Architecture, progress: Progress = silent) -> Recipe:
    """Products with the blocks of their tiles, and what the model says that they take."""
    operators = translate(graph).graph
    plan = policy.tiles(operators, on, progress)
    refuse(violations(plan, operators, on.units))
    kernels: dict[str, str] = {}
    refused: dict[str, str] = {}
    blocks: dict[str, list[int]] = {}
    for planned in plan.kernels:
        node = graph.by_name.get(planned.operators[0])
        if node is None or node.target not in KERNELS:
            continue
        if reason := _obstacle(node, graph):
            refused[node.name] = reason
            continue
        kernels[node.name] = KERNELS[node.target]
        blocks[node.name] = list(launch_blocks(planned).arguments())
    predicted = {kernel.operators[0]: kernel.cost.seconds for kernel in plan.kernels}
    options = {"kernels": kernels, "refused": refused, "blocks": blocks, "predicted_seconds": predicted}
    return Recipe("triton", options)


def _obstacle(node: GraphNode, graph: Graph) -> str:
    """Why the kernel cannot stand for the op; empty when it can."""
    kinds = [graph.type(ref) for ref in node.refs]
    types = sorted({kind.dtype for kind in kinds})
    if len(types) > 1 or types[0] not in TYPES:
        return f"reads {', '.join(types)}"
    if KERNELS[node.target] == "tiled_matmul" and any(len(kind.shape) != 2 for kind in kinds):
        return "multiplies tensors that are not 2-d"
    return ""
