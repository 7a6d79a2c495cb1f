"""``serving-scenario``: models that are served together, with load, objective and cost of each (JSON).

A model has one cost: ``latency`` of a request, ``profile`` by batch or ``profile_file`` (Nexus' profiles),
``layers``, ``kernels`` (a file of REEF's) or ``sizes`` (a model known by its published sizes, with the tokens
of a ``sequence``). Files that it names are looked for next to it, or where ``options.extra`` says.

Beyond rates, a client that is ``closed`` asks again when it is answered, and ``times`` are arrivals as they
were recorded; a model ``after`` another is asked ``share`` times by each of its answers, and the objective of
a query is that of its first model.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from experiments.core import jsonio, knobs
from experiments.core.errors import BadInput
from experiments.core.knobs import knob
from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.readers.request_rows import refuse_scale
from experiments.readers.scenario_costs import (
    COSTS,
    LARGEST,
    LONGEST,
    as_object,
    is_number,
    numbers,
    read_cost,
)
from experiments.readers.scenario_files import SideFiles, read_alone, read_bundle, side_folder
from experiments.workloads.arrival_processes import PROCESSES, SWITCHED
from experiments.workloads.scenario import CLASSES, CLOSED, REAL_TIME, Scenario, ScenarioModel

MOST_MODELS, MOST_REQUESTS, MOST_LEVELS = 10_000, 5_000_000, 32
#: Variation of gaps of a process that is switched on and off: with less it is switched too often to draw.
LEAST_SWITCHED = 1.1


@dataclass(frozen=True)
class Fields:
    """The plain fields of a model's row, with their bounds."""

    name: str = knob("", "what it is called")
    slo: float | None = knob(None, "answered within", low=1e-9, high=LONGEST, unit="s")
    rate: float | None = knob(None, "mean requests a second", low=0.0, high=1e7, unit="1/s")
    arrivals: str = knob("poisson", "process of arrivals", choices=(*PROCESSES, CLOSED))
    cv: float = knob(1.0, "coefficient of variation of the gaps", low=1e-2, high=1e3)
    bytes: float | None = knob(None, "weights on a device", low=0.0, high=1e15, unit="bytes")
    preprocess: float | None = knob(None, "before a pass", low=0.0, high=LONGEST, unit="s")
    postprocess: float | None = knob(None, "after a pass", low=0.0, high=LONGEST, unit="s")
    after: str = knob("", "the model whose answers ask this one")
    share: float = knob(1.0, "times that each of those answers asks it", low=0.0, high=1e4)


PLAIN = frozenset(field.name for field in fields(Fields))
ALLOWED = PLAIN | {"class", "times", "peaks", "sequence", *COSTS}


def _recognizes(head: bytes, name: str) -> bool:
    has_load = b'"duration"' in head or (b'"slo"' in head and b'"rate"' in head)
    return head.lstrip().startswith(b"{") and b'"models"' in head and has_load


def _read(files: SideFiles, data: bytes, name: str, options: WorkloadOptions) -> Reading:
    document = _object(jsonio.loads(data, name), name, {"duration", "models"})
    duration, rows = document.get("duration"), document.get("models")
    if not is_number(duration, 1e-9, LONGEST):
        raise BadInput(f"{duration!r:.60}", f"{name}: duration", f"seconds, above 0 to {LONGEST:g}")
    if not isinstance(rows, list) or not 0 < len(rows) <= MOST_MODELS:
        raise BadInput(f"{rows!r:.60}", f"{name}: models", f"a list of 1 to {MOST_MODELS} models")
    models = tuple(_model(row, f"{name}: models[{place}]", files) for place, row in enumerate(rows))
    _refuse_broken_queries(models, name)
    scenario = apply_options(Scenario(name, float(duration), models, facts={"files": files.digests}), options)
    refuse_too_many(scenario)
    return Reading(scenario, _list_assumptions(models))


def _list_assumptions(models: Sequence[ScenarioModel]) -> tuple[str, ...]:
    unknown = [model.name for model in models if not model.bytes]
    if not unknown:
        return ()
    return (f"the bytes of {len(unknown)} models are not told ({unknown[0]}): weights of no size",)


def apply_options(scenario: Scenario, options: WorkloadOptions) -> Scenario:
    """The first ``limit`` requests; all loads in proportion, so that ``rate`` arrive in a second together.

    Objectives are ``slo_scale`` times their own.
    """
    scenario = replace(scenario, most_requests=options.limit)
    if options.slo_scale is not None:
        scenario = replace(scenario, models=tuple(_relax(scenario, options.slo_scale)))
    total = sum(scenario.rate(model.name) for model in scenario.models if not model.after)
    if options.rate is None or total == 0:
        return scenario
    ratio = options.rate / total
    return replace(scenario, models=tuple(_load_times(model, ratio) for model in scenario.models))


def _relax(scenario: Scenario, scale: float) -> Iterator[ScenarioModel]:
    if all(model.slo is None for model in scenario.models):
        refuse_scale(scenario.name, "models")
    for model in scenario.models:
        yield model if model.slo is None else replace(model, slo=model.slo * scale)


def _load_times(model: ScenarioModel, ratio: float) -> ScenarioModel:
    """``model`` with so many times the load; recorded arrivals go by faster."""
    times = None if model.times is None else tuple(time / ratio for time in model.times)
    return replace(model, rate=model.rate * ratio, times=times)


def refuse_too_many(scenario: Scenario) -> None:
    """``BadInput`` for a load of more requests than anybody would simulate."""
    expected = sum(scenario.rate(model.name) for model in scenario.models) * scenario.duration
    if expected > MOST_REQUESTS:
        raise BadInput(f"{expected:.3g} requests", scenario.name, f"at most {MOST_REQUESTS} in its duration")


def _model(row: Any, where: str, files: SideFiles) -> ScenarioModel:
    row = _object(row, where, ALLOWED)
    plain = knobs.load(Fields, {key: value for key, value in row.items() if key in PLAIN}, where)
    if not plain.name:
        raise BadInput("is missing", f"{where}.name", "what the model is called")
    service_class = row.get("class", REAL_TIME)
    if service_class not in CLASSES:
        raise BadInput(f"{service_class!r:.60} is no class", f"{where}.class", "one of " + ", ".join(CLASSES))
    times = _times(row["times"], f"{where}.times") if "times" in row else None
    _refuse_unclear_load(plain, service_class, times is not None, where)
    read = read_cost(row, where, files)
    told = {name: getattr(plain, name) for name in ("bytes", "preprocess", "postprocess")}
    filled = {name: getattr(read, name) if value is None else value for name, value in told.items()}
    same = {name: getattr(plain, name) for name in ("name", "slo", "arrivals", "cv", "after", "share")}
    peaks = numbers(row["peaks"], f"{where}.peaks", 0, LARGEST) if "peaks" in row else ()
    filled |= {"peaks": peaks, "times": times, "service_class": service_class}
    return ScenarioModel(cost=read.cost, rate=plain.rate or 0.0, **same, **filled)


def _times(value: Any, where: str) -> tuple[float, ...]:
    times = numbers(value, where, 0, LONGEST)
    for place in range(1, len(times)):
        if times[place] < times[place - 1]:
            raise BadInput(
                f"{times[place]:g} after {times[place - 1]:g}", f"{where}[{place}]", "ascending times"
            )
    return times


def _refuse_unclear_load(plain: Fields, service_class: str, is_recorded: bool, where: str) -> None:
    """A model has a rate, recorded times or a model before it, and what its process needs."""
    loads = [plain.rate is not None, is_recorded, bool(plain.after)]
    if plain.arrivals == CLOSED:
        if any(loads):
            raise BadInput("several say its load", f"{where}.rate", "none where arrivals are closed")
        return
    if sum(loads) > 1 or (service_class == REAL_TIME and not any(loads)):
        expected = "a rate (requests/s), recorded times, or the model that it is after"
        raise BadInput("is missing" if not any(loads) else "several say its load", f"{where}.rate", expected)
    if plain.arrivals == SWITCHED and plain.cv < LEAST_SWITCHED:
        expected = f"at least {LEAST_SWITCHED:g} for mmpp, whose gaps vary more than chance"
        raise BadInput(f"{plain.cv:g}", f"{where}.cv", expected)


def _refuse_broken_queries(models: Sequence[ScenarioModel], name: str) -> None:
    """Names are unique, and what a model is ``after`` is another that leads to one with a load of its own."""
    known = {model.name: model for model in models}
    for place, model in enumerate(models):
        where = f"{name}: models[{place}]"
        if known[model.name] is not model:
            raise BadInput(f"{model.name!r:.60} appears twice", f"{where}.name", "a name of its own")
        passed, one = {model.name}, model
        while one.after:
            if one.after not in known or one.after in passed:
                what = f"{one.after!r:.60} is {'before itself' if one.after in passed else 'no model of it'}"
                raise BadInput(what, f"{where}.after", "another model, without a circle")
            passed.add(one.after)
            if len(passed) > MOST_LEVELS:
                raise BadInput(
                    f"more than {MOST_LEVELS} models in a row", f"{where}.after", "a shorter query"
                )
            one = known[one.after]


def _object(value: Any, where: str, allowed: Collection[str]) -> Mapping[str, Any]:
    found = as_object(value, where)
    for key in found:
        if key not in allowed:
            raise BadInput(f"unknown field {key!r:.60}", where, ", ".join(sorted(allowed)))
    return found


READER = Reader(
    "serving-scenario",
    "requests",
    "models that are served together: load, objective and cost of each (JSON); options.extra has the files "
    "that it names, unless they are next to it",
    _recognizes,
    read_alone(_read),
    bundle=read_bundle(_read),
    side_file=side_folder,
)
