"""A scheduling policy's answer for this host as a recipe of the backend ``rtasks``."""

from __future__ import annotations

from experiments.compilation.interface import Recipe, refuse
from experiments.compilation.interface.blocks import SchedulingPolicy, omissions, violations
from experiments.compilation.live.backends.base import Task
from experiments.compilation.live.costs import Bench, MeasuredPrices
from experiments.compilation.live.rtasks.division import draws
from experiments.compilation.live.rtasks.lanes import lanes_on, launch_and_wait
from experiments.compilation.live.rtasks.program import groups_of
from experiments.compilation.live.rtasks.works import lane_share, lanes_of, works_of
from experiments.compilation.live.types import Inference
from experiments.core.errors import BadInput
from experiments.core.progress import Progress, silent


def schedule_recipe(policy: SchedulingPolicy, task: Task, progress: Progress = silent) -> Recipe:
    """Return the schedule for this host's lanes, with what the policy's model says that it takes."""
    if task.graph.mutates:
        raise BadInput("writes to its arguments or buffers", "workload", "a model without state")
    if drawing := [node.name for node in task.graph.ops if draws(node)]:
        raise BadInput(f"{drawing[0]} draws at random", "workload", "a model whose ops may run in any order")
    lanes = lanes_of(task.device, policy.lanes)
    progress(0.0, "timing a lane")
    dtype = next((kind.dtype for node in task.graph.inputs for kind in node.outputs if kind), "float32")
    dtype = dtype if dtype in ("float32", "bfloat16", "float64") else "float32"
    launch, wait = launch_and_wait(lanes_on(task.device, lanes), lanes)
    share = lane_share(task.device, lanes, dtype, policy.latency, wait)
    works = works_of(task.graph, Bench(Inference(task.device), MeasuredPrices(task.device)))
    progress(0.5, "binding blocks to lanes")
    schedule = policy.plan(works, share, launch)
    refuse([*violations(schedule), *omissions(schedule, works)])
    measured = {"launch_seconds": launch, "wait_seconds": wait, "block_seconds": share.latency}
    options = {"lanes": lanes, "groups": groups_of(schedule), "predicted_seconds": schedule.seconds}
    return Recipe("rtasks", {**options, **measured})
