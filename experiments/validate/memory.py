"""Memory policies: a model's step is profiled on this host once, and every policy's plan is carried out on
it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.core import registry
from experiments.core.completion import complete
from experiments.core.errors import Infeasible, LabError
from experiments.core.progress import Progress, part
from experiments.core.spec import load_workload
from experiments.memory import experiment
from experiments.memory.interface import MemoryPolicy
from experiments.sources import load
from experiments.validate.cells import (
    CRASHES,
    EVERYTHING,
    SINGLE_DEVICE,
    Chosen,
    Models,
    ValidationCell,
    cell_spec,
    compare,
    left_out,
    line_of,
)
from experiments.workloads.step import Step

#: Policies that move things whatever the capacity, and those that move only what does not fit.
EAGER = ("baseline", "swap_all", "checkpoint", "vdnn-all")
PLANNED = ("capuchin", "superneurons", "flashneuron", "zero_offload")
#: The latter plan for the persistent tensors and this share of the most that lives next to them: the first
#: that they can do with. The file says in every cell which capacity it was.
SHARES = (0.6, 0.75, 0.9, 1.0)


def models(device: str) -> Models:
    return SINGLE_DEVICE[device]


def cells(device: str, progress: Progress, chosen: Chosen = EVERYTHING) -> Iterator[ValidationCell]:
    grid = chosen.of(models(device))
    policies = tuple(policy for policy in (*EAGER, *PLANNED) if chosen.has(policy))
    for done, (model, options) in enumerate(grid.items()):
        here = part(progress, done / len(grid), (done + 1) / len(grid))
        if chosen.out_of_time:
            yield from (left_out(model, "memory", policy) for policy in policies)
        elif policies:
            yield from _of_model(model, options, policies, chosen, here)


def _of_model(
    model: str, options: Mapping[str, Any], policies: Sequence[str], chosen: Chosen, progress: Progress
) -> Iterator[ValidationCell]:
    """Every policy on one model, which is captured and profiled once."""
    share = 1 / (len(policies) + 1)
    live = registry.load_module("memory", "live")
    source = load(load_workload({"source": model, "options": dict(options)})).value
    progress(0.0, f"{model}: profiling")
    session = live.Session(source, part(progress, 0.0, share))
    for place, policy in enumerate(policies, 1):
        progress(place * share, f"{model} {policy}")
        below = part(progress, place * share, (place + 1) * share)
        if chosen.out_of_time:
            yield left_out(model, "memory", policy)
        else:
            yield _cell(session, model, options, policy, below)


def _cell(
    session: Any, model: str, options: Mapping[str, Any], policy: str, progress: Progress
) -> ValidationCell:
    """One policy in the model's session; what cannot be carried out is a cell too, with its reason."""
    clock, status, reason = time.perf_counter(), "failed", None
    for capacity in capacities(session.step) if policy in PLANNED else (None,):
        try:
            spec, made = complete(cell_spec(model, options, "memory", policy, capacity))
            assert isinstance(made, MemoryPolicy)
            result = experiment.measure_in(session, spec, made, progress)
        except Infeasible as error:
            status, reason = "infeasible", str(error)
            continue
        except LabError as error:
            status, reason = "failed", str(error)
            break
        except CRASHES as error:
            status, reason = "failed", line_of(error)
            break
        figures = compare(result.metrics, result.notes.get("predicted", {}))
        facts = (dict(result.metrics), time.perf_counter() - clock, result.notes.get("capacity"))
        return ValidationCell(model, "memory", policy, result.status, result.reason, figures, *facts)
    return ValidationCell(model, "memory", policy, status, reason, {}, {}, time.perf_counter() - clock)


def capacities(step: Step) -> list[int]:
    """What to plan for, the tightest first."""
    beside = step.live_peak - step.persistent_bytes
    least = int(step.op_need.max(initial=0))
    return [max(least, step.persistent_bytes + int(share * beside)) for share in SHARES]
