"""Backend ``whole_graph``: the model as one graph of fixed sizes, its memory planned.

A model with a graph break is refused, and the refusal names the break.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._inductor import config

from experiments.compilation.live.backends import dynamo, torch_compile
from experiments.compilation.live.backends.base import Compiled, Task
from experiments.core.errors import Infeasible

#: Breaks that a refusal spells out.
MOST_BREAKS = 3


def build(task: Task, options: Mapping[str, Any]) -> Compiled:
    """Return ``options``: planned. ``Infeasible`` where the model is more than one graph."""
    with torch.set_grad_enabled(task.training):
        graphs, found = dynamo.breaks(task.module, task.inputs)
    breaks = [one for one in found if one.where]
    if breaks:
        raise Infeasible(f"no whole graph but {graphs}: {explain_breaks(breaks)}", "whole_graph")
    with config.patch(memory_planning=bool(options.get("planned"))):
        return torch_compile.build(task, {"dynamic": False, "fullgraph": True})


def explain_breaks(breaks: Sequence[dynamo.Break]) -> str:
    """Return where the graph breaks, at which line of the model, and why."""
    rows = [f"{one.where} `{one.line}`: {one.reason}" for one in breaks[:MOST_BREAKS]]
    more = len(breaks) - len(rows)
    return "; ".join(rows) + (f"; and {more} more" if more else "")
