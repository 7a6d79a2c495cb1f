"""A run's stored outcome as the run page shows it: headline figures, series, plan tables, provenance."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from django.http import Http404
from django.utils.safestring import SafeString

from experiments.core import trace_events
from experiments.core.budget import ENDED_AT
from experiments.core.differences import ENDS, NO_DIFFERENCE, interval_of, is_unseen
from experiments.core.metrics import METRICS
from experiments.core.precision import states_in_words
from experiments.core.units import human
from webapp.presentation import pretty
from webapp.runs.cluster_figure import DRAWN as DRAWN_OF_CLUSTERS
from webapp.runs.cluster_figure import ClusterView, cluster_view
from webapp.runs.compilation_figure import CompilationView, compilation_view, quartiles_overlap
from webapp.runs.figures import figures_of
from webapp.runs.headline import headline_of, leading_figures, limit_of
from webapp.runs.kernels_figure import SHOWN, KernelsView, kernels_view
from webapp.runs.lanes import is_in_columns, lanes_of
from webapp.runs.memory_figure import MemoryView, memory_view
from webapp.runs.mesh_words import mesh_in_words
from webapp.runs.models import Run, RunDocument
from webapp.runs.parallel_figure import MEMORY, ParallelView, parallel_view
from webapp.runs.parallel_names import in_parallel_words
from webapp.runs.plan_names import in_names
from webapp.runs.plan_topology import Topology, topology_of
from webapp.runs.plan_words import line_of, words_of
from webapp.runs.planner_notes import Notes, notes_of
from webapp.runs.provenance import Provenance, ended_for_time, provenance_of
from webapp.runs.record_words import in_record_words
from webapp.runs.serving_figure import ServingView, serving_view
from webapp.runs.serving_plots import DRAWN as DRAWN_OF_SERVING
from webapp.runs.torus_figure import TorusView, torus_view
from webapp.runs.waterfall import Waterfall, waterfall_of

#: Model FLOPs utilization above which a figure is doubted.
BELIEVABLE_MFU = 0.7
#: Drawn as a plot or shown as a table, not written out as a line.
DRAWN = ("timeline", "columns", "rows")
#: What the plan of a parallel step says by worker, and what its search says: tables of their own.
TOLD_BY_WORKER = (
    "live_micro_batches",
    "live_by_stage",
    "peak_memory_by_worker",
    "capacity_by_worker",
    "communication_by_worker",
    "notes",
    "mesh",
)
#: What a plan's notes and its drawing on the cluster say already.
TOLD_ABOVE = ("notes", "mesh", ENDED_AT)
#: A compiled graph's plan: both graphs op by op, and what its own sections show.
WHOLE_GRAPHS = ("before", "after")
TOLD_BY_CLUSTER = ("jobs", "nodes", "origin", "executions", "sampling")
TOLD_BY_SERVING = ("sampling",)
TOLD_BY_TORUS = ("torus", "chip")
TOLD_BY_GRAPH = ("refused", "report", "search", "op_seconds", "exactness", ENDED_AT)
#: Curves of a memory step, which stand in one figure.
DRAWN_TOGETHER = ("device_bytes", "capacity", "channel.")


#: A figure's name, its value or the words in its place, and its interval in words.
Figure = tuple[str, float | str, str]


@dataclass(frozen=True)
class PlanTable:
    """A list of the plan: its records as rows under the columns that any of them has."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]
    is_long: bool = False


@dataclass(frozen=True)
class RunView:
    headline: SafeString | None
    large: tuple[Figure, ...]
    metrics: tuple[Figure, ...]
    limit: float | None
    plots: tuple[Mapping[str, Any], ...]
    memory: MemoryView | None
    parallel: ParallelView | None
    waterfall: Waterfall | None
    mesh: str
    compilation: CompilationView | None
    cluster: ClusterView | None
    serving: ServingView | None
    kernels: KernelsView | None
    topology: Topology | None
    torus: TorusView | None
    notes: Notes | None
    tables: tuple[PlanTable, ...]
    plan_facts: tuple[tuple[str, Any], ...]
    violations: tuple[str, ...]
    doubts: tuple[str, ...]
    warnings: tuple[str, ...]
    provenance: Provenance
    sheets: str
    timing: str
    states: str
    ended_at: str
    settled: Mapping[str, Any]
    tried: tuple[str, ...]

    @property
    def folded_tables(self) -> tuple[str, ...]:
        """Tables that are shown on request: the page compares them already."""
        executions = ("rows",) if self.cluster or self.serving else ()
        long = tuple(table.name for table in self.tables if table.is_long)
        graphs = WHOLE_GRAPHS if self.compilation else ()
        return (*long, *graphs, *(SHOWN if self.kernels else ()), *executions)

    def plan_table(self, name: str) -> PlanTable:
        """The table of that name, or 404."""
        found = next((table for table in self.tables if table.name == name), None)
        if found is None:
            raise Http404(f"the plan has no table {name!r:.60}")
        return found


def view_of(run: Run, asked: Mapping[str, str] = MappingProxyType({})) -> RunView:
    """``asked`` says whose lives are looked at: ``jobs`` or one ``job`` of a cluster run, ``requests`` or one
    ``request`` of a serving run.
    """
    outcome = outcome_of(run)
    plan: Mapping[str, Any] = outcome.get("plan") or {}
    provenance: Mapping[str, Any] = outcome.get("provenance") or {}
    memory, parallel = memory_view(outcome), parallel_view(outcome)
    compilation, cluster = compilation_view(outcome), cluster_view(outcome, asked)
    serving = serving_view(outcome, asked)
    elsewhere: tuple[str, ...] = TOLD_BY_WORKER if parallel else TOLD_BY_GRAPH if compilation else TOLD_ABOVE
    drawn: tuple[str, ...] = DRAWN_TOGETHER if memory else (MEMORY, "bubble_by_device") if parallel else ()
    if cluster:
        elsewhere, drawn = TOLD_BY_CLUSTER, DRAWN_OF_CLUSTERS
    if serving:
        elsewhere, drawn = TOLD_BY_SERVING, DRAWN_OF_SERVING
    torus = torus_view(outcome)
    elsewhere = TOLD_BY_TORUS if torus else elsewhere
    values = run.figures
    shown, large = tuple(shown_metrics(values, provenance)), leading_figures(run.family, values)
    return RunView(
        headline=headline_of(run, values, outcome),
        large=tuple(figure for name in large for figure in shown if figure[0] == name),
        metrics=shown,
        limit=limit_of(outcome),
        plots=_plots(outcome, {} if cluster else plan, drawn),
        memory=memory,
        parallel=parallel,
        waterfall=waterfall_of(run, values, plan) if parallel else None,
        mesh=mesh_in_words(plan) if parallel else "",
        compilation=compilation,
        cluster=cluster,
        serving=serving,
        kernels=kernels_view(outcome),
        topology=topology_of(outcome),
        torus=torus,
        notes=notes_of(plan) if run.family == "parallel" else None,
        tables=_tables(plan, elsewhere, provenance.get("names") or {}),
        plan_facts=_facts(in_names(plan, provenance.get("names") or {}), elsewhere),
        violations=tuple(outcome.get("violations") or ()),
        doubts=tuple(_doubts(values)),
        warnings=tuple(provenance.get("warnings") or ()),
        provenance=provenance_of(outcome),
        timing=_timing(provenance),
        states=states_in_words(provenance),
        ended_at=_ended_at(plan, provenance),
        sheets=json.dumps(provenance["hardware"], indent=2) if "hardware" in provenance else "",
        settled=provenance.get("settled") or {},
        tried=tuple(_setting(row) for row in provenance.get("tried") or ()),
    )


def _ended_at(plan: Mapping[str, Any], provenance: Mapping[str, Any]) -> str:
    """Why a search ended before its end, and how it is repeated; empty where it did not."""
    said = plan.get(ENDED_AT) or (plan.get("notes") or {}).get(ENDED_AT)
    return str(said) if said else ended_for_time(provenance)


def shown_metrics(values: Mapping[str, float], provenance: Mapping[str, Any]) -> Iterator[Figure]:
    """Each figure, or the words in its place, with the interval that it has."""
    for name in METRICS:
        if name not in values or name in ENDS:
            continue
        interval = interval_of(name, values)
        unseen = is_unseen(name, values) or (name == "speedup" and quartiles_overlap(provenance))
        words = "" if interval is None else f"{interval[0]:.3g} to {interval[1]:.3g}, 95 %"
        yield name, NO_DIFFERENCE if unseen else values[name], words


def _setting(row: Mapping[str, Any]) -> str:
    """What became of a setting of open knobs: ``stages 2, micro batches 8: a step of 1.21 s``."""
    knobs = {name: value for name, value in row.items() if name not in ("step_time", "refused")}
    said = ", ".join(f"{words_of(name)} {pretty(value)}" for name, value in knobs.items())
    step = row.get("step_time")
    return f"{said}: {row.get('refused') if step is None else 'a step of ' + human(step, 's')}"


def _timing(provenance: Mapping[str, Any]) -> str:
    """Where the times of the step's ops come from: ``measured on cpu:AMD EPYC``, ``roofline of a100-40g``."""
    timing, device = str(provenance.get("timing", "")), str(provenance.get("timed_on", ""))
    if not device:
        return timing
    bound = " at full peak: a lower bound on time" if provenance.get("full_peak") else ""
    return f"{timing} {'on' if timing == 'measured' else 'of'} {device}{bound}"


def _doubts(values: Mapping[str, float]) -> Iterator[str]:
    """What a reader should not believe as it stands."""
    if values.get("mfu", 0.0) > BELIEVABLE_MFU:
        share = f"{values['mfu']:.0%}"
        yield f"An MFU of {share} is more than training reaches: the times are those of ideal kernels."


def _plots(
    outcome: Mapping[str, Any], plan: Mapping[str, Any], drawn: tuple[str, ...]
) -> tuple[Mapping[str, Any], ...]:
    """The curves that no figure of the family has drawn already."""
    lanes = lanes_of(plan)
    series = outcome.get("series") or {}
    left = {name: curve for name, curve in series.items() if not name.startswith(drawn or "\0")}
    return (*lanes, *figures_of({name: _by_name(curve, plan) for name, curve in left.items()}))


def _by_name(curve: Mapping[str, Any], plan: Mapping[str, Any]) -> Mapping[str, Any]:
    """A curve over the models of a plan has their names instead of their numbers."""
    models = plan.get("models")
    if curve.get("x_unit") != "model" or not isinstance(models, list):
        return curve
    names = {float(place): model["name"] for place, model in enumerate(models) if "name" in model}
    return {**curve, "x": [names.get(float(place), place) for place in curve["x"]]}


def _facts(plan: Mapping[str, Any], elsewhere: tuple[str, ...]) -> tuple[tuple[str, Any], ...]:
    """What a plan says in one line each; of nothing (no shardings, no slices) nothing is said."""
    named = (one for one in plan.items() if one[0] not in (*DRAWN, *elsewhere))
    said = (one for one in named if not _is_table(one[1]) and not is_in_columns(one[1]))
    return tuple((words_of(name), line_of(name, value)) for name, value in said if value not in ([], {}))


def outcome_of(run: Run) -> Mapping[str, Any]:
    """The run's stored outcome; empty before it has one."""
    try:
        found: Mapping[str, Any] = run.document.outcome
    except RunDocument.DoesNotExist:
        return {}
    return found


def _is_table(value: Any) -> bool:
    """A list of records; a list of plain values is a fact of one line."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _tables(
    plan: Mapping[str, Any], elsewhere: tuple[str, ...], named: Mapping[str, Mapping[str, str]]
) -> tuple[PlanTable, ...]:
    """The lists of a plan; many equal records are stored as ``columns`` (their names) and
    ``rows`` of values.
    """
    names = [name for name, rows in plan.items() if _is_table(rows) and name not in elsewhere]
    whole = [("rows", plan), *((name, value) for name, value in plan.items() if name not in elsewhere)]
    in_columns = tuple(
        _of_columns(name, value) for name, value in whole if is_in_columns(value) and value["rows"]
    )
    if "layers" in named or "stages" in names:
        return tuple(
            _table(name, in_parallel_words(name, plan[name], named.get("layers") or {})) for name in names
        )
    told = {name: [in_record_words(in_names(row, named)) for row in plan[name]] for name in names}
    return (*(_table(name, rows) for name, rows in told.items()), *in_columns)


def _of_columns(name: str, held: Mapping[str, Any]) -> PlanTable:
    columns = tuple(held["columns"])
    rows = tuple(in_record_words(dict(zip(columns, row, strict=True))) for row in held["rows"])
    return PlanTable(name, columns, rows, is_long=name != "rows")


def _table(name: str, rows: list[Mapping[str, Any]]) -> PlanTable:
    """Columns in which no row says anything are left out."""
    columns = dict.fromkeys(key for row in rows for key in row)
    said = (key for key in columns if any(row.get(key) not in (None, "", [], {}) for row in rows))
    return PlanTable(name, tuple(said), tuple(rows))


def trace_of(run: Run) -> dict[str, Any]:
    """The stored outcome for Perfetto, or 404."""
    outcome = outcome_of(run)
    if not outcome.get("series"):
        raise Http404("this run has nothing over time")
    return trace_events.trace(outcome)


def repeatable_spec(run: Run) -> dict[str, Any]:
    """The spec with a source that a reader can put in place: the zoo's name, or the artifact's file name."""
    spec = dict(run.spec)
    workload = dict(spec.get("workload") or {})
    if run.artifact is not None:
        workload["source"] = run.artifact.fileless or run.artifact.name
    return {**spec, "workload": workload} if workload else spec
