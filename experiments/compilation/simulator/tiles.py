"""One simulated run of a tile policy.

A model's operators, or a list of them, as kernels on a named device.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from experiments.compilation.interface import Graph, refuse
from experiments.compilation.interface.architecture import Architecture
from experiments.compilation.interface.tile_graph import TileGraph, independent
from experiments.compilation.interface.tiles import TilePlan, TilePolicy, violations
from experiments.compilation.planning.tiles.from_graph import translate
from experiments.compilation.simulator.listed_operators import expression
from experiments.compilation.simulator.tile_report import curves, document, figures, ratios
from experiments.core.package_files import path_of
from experiments.core.progress import Progress, part
from experiments.core.reading import refusal
from experiments.core.spec import CLOCKS, Result, RunSpec
from experiments.hardware import resolve
from experiments.sources import Loaded, load
from experiments.workloads.model import ModelSource
from experiments.workloads.operator_list import OperatorList

#: Exports a model's forward pass from a seed, with the uploaded file where there is one.
Export = Callable[[ModelSource, int, Progress, Path | None], Graph]


def carry_out(spec: RunSpec, policy: TilePolicy, progress: Progress, export: Export) -> Result:
    """Return the policy's kernels, priced on the device of the spec.

    What constructing them took is provenance.
    """
    device = resolve(spec.hardware).device
    on = Architecture(device)
    units = on.units
    loaded = load(spec.workload)
    graph, copies = _operators(spec, loaded, part(progress, 0.0, 0.5), export)
    recorded = loaded.value.recorded if isinstance(loaded.value, OperatorList) else {}
    start, busy = time.perf_counter(), time.process_time()
    plan = policy.tiles(graph, on, part(progress, 0.5, 1.0))
    spent, busy = time.perf_counter() - start, time.process_time() - busy
    refuse(violations(plan, graph, units))
    found = ratios(plan, on.launch, recorded)
    return Result(
        metrics=_metrics(plan, graph, policy.connects) | figures(found),
        series=curves(found),
        plan=document(plan),
        workload_sha256=loaded.sha256,
        notes={
            "device": device.name,
            "kernels": "modeled from tiles, not measured",
            "assumed": list(loaded.assumed),
            "priced_as_copies": list(copies),
            "recorded": {system: len(times) for system, times in recorded.items()},
            CLOCKS: {"compile_time": spent, "compile_cpu_time": busy},
        },
    )


def _operators(
    spec: RunSpec, loaded: Loaded, progress: Progress, export: Export
) -> tuple[TileGraph, tuple[str, ...]]:
    if isinstance(loaded.value, OperatorList):
        return independent([expression(operator) for operator in loaded.value.operators]), ()
    if not isinstance(loaded.value, ModelSource):
        raise refusal(loaded.kind, ("model", "operators"), spec.workload.source)
    source = replace(loaded.value, options=replace(loaded.value.options, training=False))
    file = None if source.zoo else path_of(spec.workload.source)
    translated = translate(export(source, spec.seed, progress, file))
    return translated.graph, translated.copies


def _metrics(plan: TilePlan, graph: TileGraph, connects: bool) -> dict[str, float]:
    found = {
        "latency": plan.seconds,
        "kernels": len(plan.kernels),
        "ops": len(graph.nodes),
        "bytes": plan.bytes,
        "flops": sum(kernel.flops for kernel in plan.kernels),
    }
    if not connects or not plan.seconds:
        return found
    return found | {
        "speedup": plan.apart_seconds / plan.seconds,
        "traffic_ratio": plan.bytes / plan.apart_bytes,
    }
