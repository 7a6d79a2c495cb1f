"""What a trial tells: counts, figures by the op prices, and the plan with both graphs, op by op."""

from __future__ import annotations

from typing import Any

from experiments.compilation.interface import CONSTANT, OP, Graph, GraphNode
from experiments.compilation.live.costs import Bench
from experiments.compilation.live.runner import CompiledRun
from experiments.core.budget import ENDED_AT


def counts(trial: CompiledRun) -> dict[str, float]:
    """Return ops before or after, rewrites, FLOPs and bytes."""
    if trial.rewritten is None:
        return {"ops": len(trial.task.whole.computing), "rewrites": 0}
    graph = trial.rewritten.graph
    found: dict[str, float] = {"ops": len(graph.computing), "rewrites": len(trial.rewritten.applied)}
    if trial.bench is not None:
        work = trial.bench.total_work(graph)
        found |= {"flops": work.flops, "bytes": work.bytes}
    return found


def predicted_metrics(trial: CompiledRun) -> dict[str, float]:
    """Latency and speed-up by the prices of the named device."""
    before, after = predict_seconds(trial)
    return {"latency": after, "speedup": before / after if after else 1.0}


def predict_seconds(trial: CompiledRun) -> tuple[float, float]:
    """Return seconds of the graph before and after the rewrite by the prices of its bench."""
    assert trial.bench is not None
    assert trial.rewritten is not None
    return trial.bench.cost(trial.task.graph), trial.bench.cost(trial.rewritten.graph)


def plan_of(trial: CompiledRun) -> dict[str, Any]:
    """Return the plan as JSON.

    Recipe or rewrites, the backend's report, both graphs with what each op costs.
    """
    before = trial.task.whole
    plan: dict[str, Any] = {
        "report": dict(trial.compiled.report),
        "before": rows(before, trial.bench, before),
    }
    if trial.recipe is not None:
        return plan | {"recipe": trial.recipe.to_json()}
    assert trial.rewritten is not None
    after = trial.rewritten
    seconds = dict(zip(("before", "after"), predict_seconds(trial), strict=True))
    return plan | {
        "after": rows(after.graph, trial.bench, before),
        "applied": [step.to_json() for step in after.applied],
        "refused": dict(after.refused),
        "search": dict(after.search),
        "exactness": after.exactness,
        "op_seconds": seconds,
        **({ENDED_AT: after.ended_at} if after.ended_at else {}),
    }


def rows(graph: Graph, bench: Bench | None, original: Graph) -> list[dict[str, Any]]:
    """One row for each op and constant.

    ``state`` tells how it stands to the original: kept, rewired, new or once.
    """
    return [_row(node, graph, bench, original) for node in graph.nodes if node.kind in (OP, CONSTANT)]


def _row(node: GraphNode, graph: Graph, bench: Bench | None, original: Graph) -> dict[str, Any]:
    row = {
        "name": node.name,
        "kind": node.kind,
        "target": node.target,
        "inputs": list(node.inputs),
        "shape": list(node.shape),
        "dtype": node.dtype,
        "bytes": node.bytes,
        "view": node.views,
        "state": state(node, original),
    }
    if bench is not None and node.kind == OP:
        work = bench.work(node, graph)
        row |= {"seconds": bench.seconds(node, graph), "flops": work.flops, "traffic": work.bytes}
    return row


def state(node: GraphNode, original: Graph) -> str:
    known = original.by_name.get(node.name)
    if node.once and not (known and known.once):
        return "once"
    if known is None:
        return "new"
    return "kept" if known == node else "rewired"
