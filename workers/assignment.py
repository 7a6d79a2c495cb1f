"""What a trial is given for a run (command, files, limits), and what its end means for the run."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from django.conf import settings

from experiments.core import jsonio, registry
from experiments.core.errors import BadInput
from experiments.core.reading import what_is_read
from experiments.core.spec import Outcome, load_outcome
from experiments.models.catalog import ZOO, zoo_model
from experiments.summaries.composed_law import with_updates
from experiments.workloads.transformer import has_closed_form
from webapp.advice.services import keep_answer
from webapp.artifacts.laws import lacks_law
from webapp.artifacts.models import Artifact
from webapp.artifacts.services import store_bytes
from webapp.artifacts.step_options import spell_out_options
from webapp.hosts import validating
from webapp.runs import derivation, turns
from webapp.runs.lifecycle import STATES, Diagnosis, Ending
from webapp.runs.models import Run
from workers import beside, results
from workers.sandbox import Limits, usual_processes
from workers.sources import (
    Unusable,
    named_files,
    node_list_of,
    placed_file,
    placed_list,
    portable_source,
    source_of,
)
from workers.trial import Ended

OUTCOME_BYTES, INSPECTION_BYTES = 256 * 2**20, 16 * 2**20
BAD_INPUT = 2
#: Families whose simulators are held against what a host measures.
VALIDATED = ("memory", "compilation", "parallel")
#: Options of every verb that takes long.
PROGRESS = ("--progress", "json", "--progress-fd", "{progress}")


@dataclass(frozen=True)
class Waits:
    """The run waits for another one."""

    needed: Run


@dataclass(frozen=True)
class Assignment:
    """``collect`` turns the folder of a trial that ended by itself with 0 or an outcome into the run's
    ending.
    """

    words: tuple[str, ...]
    inputs: tuple[Path, ...]
    limits: Limits
    collect: Callable[[Ended], Ending]
    stdout: Path | None = None
    module: str = "experiments"

    @property
    def command(self) -> list[str]:
        program = shlex.split(settings.TRIAL_COMMAND) or [sys.executable, "-m", self.module]
        return [*program, *self.words]


def assign(run: Run, work: Path, memory: int) -> Assignment | Waits:
    """What ``run`` needs here. Raises ``Unusable``, ``files.Unavailable`` or ``OSError``."""
    processes = settings.TRIAL_PROCESSES or usual_processes()
    limits = Limits(memory, settings.TRIAL_SECONDS, processes, settings.TRIAL_DISK_BYTES)
    if run.kind == Run.Kind.INSPECT:
        return _inspect(run, work, replace(limits, seconds=settings.READING_SECONDS))
    if run.kind == Run.Kind.POLICY:
        return _policy(run, work, limits)
    if run.kind == Run.Kind.ADVISE:
        return _advise(run, work, limits)
    if run.kind == Run.Kind.VALIDATE:
        return _validate(run, work, limits)
    return _step(run, work, limits)


def torch_version() -> str:
    """The release of torch; its builds for CUDA and for processors capture the same steps."""
    try:
        return version("torch").partition("+")[0]
    except PackageNotFoundError:
        return "none"


def _about(run: Run) -> Artifact:
    if run.artifact is None:
        raise Unusable("the artifact that this run is about was deleted")
    if run.artifact.state == Artifact.State.REJECTED:
        raise Unusable(f"{run.artifact.name} was rejected: {run.artifact.reason}")
    return run.artifact


def _inspect(run: Run, work: Path, limits: Limits) -> Assignment:
    artifact = _about(run)
    source, inputs = source_of(artifact)
    again = bool(run.spec.get("beside"))
    if again:
        source, inputs = beside.place_with_siblings(artifact, work)
    told = work / "inspection.json"

    def collect(ended: Ended) -> Ending:
        found = _read(told, INSPECTION_BYTES)
        columns = {name: found[name] for name in ("kind", "format", "summary", "assumed", "warnings")}
        ready = {**columns, "state": Artifact.State.READY, "reason": ""}
        artifact.format = found["format"]
        next = beside.readings_again(artifact) if found["looks_beside"] and not again else ()
        artifact.kind, artifact.summary = found["kind"], found["summary"]
        if settings.CAPTURE_AT_ONCE and derivation.is_worth_a_capture(artifact):
            next = (*next, derivation.first_capture(artifact, torch_version()))
        return Ending(Run.State.SUCCEEDED, artifact=ready, next=next)

    return Assignment(("inspect", source, "--json", *PROGRESS), inputs, limits, collect, told)


def _step(run: Run, work: Path, limits: Limits) -> Assignment:
    """A capture, or a profile on the device kind that the run needs.

    The step comes first, since runs wait for it; the law of its memory with it where nobody waits yet, else
    in a run after it; then what other optimizers and forms of training need.
    """
    model = _about(run)
    source, inputs = source_of(model)
    options = derivation.step_options(run.spec["workload"]["options"])
    made, told = work / "step.npz", work / "facts.json"
    device = ("--device", run.needs) if run.kind == Run.Kind.PROFILE else ()
    host = run.host.name if run.host and device else ""
    timed_on = f"{run.needs}@{host}" if device else ""
    key = run.spec.get("derive_key") or derivation.derive_key(run.kind, options, torch_version(), timed_on)
    is_captured = run.kind == Run.Kind.CAPTURE
    known = derivation.ready_step(model, key) if is_captured else None
    is_told = is_captured and (turns.LAW in run.spec or (known is not None and turns.FORMS not in run.spec))
    asked: tuple[str, ...] = ("--out", str(made))
    if known is not None:
        path, files_of_step = source_of(known)
        inputs, asked = (*inputs, *files_of_step), ("--step", path)
    asked += (*(("--law",) if is_told else ()), *(("--forms",) if turns.FORMS in run.spec else ()))

    def collect(ended: Ended) -> Ending:
        facts = _read(told, INSPECTION_BYTES)
        law, updates = facts.pop("law", None), facts.pop("updates", {})
        law = law or (known.summary.get("law") if known else None)
        law = with_updates(law, updates) if law and updates else law
        told_law = {"law": law} if law else {}
        summary = {**facts.pop("summary"), **told_law, "facts": facts, "options": options}
        if known is not None:
            derivation.store_step(run, {"key": key, "summary": summary}, known.blob)
        else:
            with results.open_result(made, limits.disk) as file:
                derivation.store_step(run, {"key": key, "summary": summary}, store_bytes(file))
        return Ending(Run.State.SUCCEEDED, next=_after_capture(run, is_told) if is_captured else ())

    words = (run.kind, source, "--options", jsonio.canonical(options), *asked, "--json")
    return Assignment((*words, *device, *PROGRESS), inputs, limits, collect, told)


def _after_capture(run: Run, is_told: bool) -> tuple[Run, ...]:
    """The next of: a step, the law of its memory, its other forms; and then the model's second step."""
    if is_told:
        return (derivation.measure_forms(run),)
    if turns.FORMS in run.spec:
        return derivation.second_capture(run, torch_version()) if settings.CAPTURE_AT_ONCE else ()
    model, options = run.artifact, run.spec["workload"]["options"]
    return (derivation.capture_law(run),) if model and lacks_law(model, options) else ()


def _advise(run: Run, work: Path, limits: Limits) -> Assignment:
    """A search for the best plan; that nothing fits is an answer too."""
    source, inputs = source_of(_about(run))
    question, told = run.spec["question"], work / "answer.json"

    def collect(ended: Ended) -> Ending:
        found = _read(told, INSPECTION_BYTES)
        jsonio.canonical(found["document"])
        keep_answer(run, {**found["document"], "seconds": found["seconds"]})
        fits = bool(found["document"]["plans"])
        return Ending(Run.State.SUCCEEDED if fits else Run.State.INFEASIBLE)

    where = ("--hardware", jsonio.canonical(_as_object(question["hardware"])))
    goal = ("--goal", question["goal"], "--margin", str(question["margin"]))
    options = ("--options", jsonio.canonical(question["options"]))
    progress = ("--json", "--progress", "json", "--progress-fd", "{progress}")
    words = ("advise", source, *where, *goal, *options, *progress)
    return Assignment(words, inputs, limits, collect, told)


def _validate(run: Run, work: Path, limits: Limits) -> Assignment:
    """Every family's grid on this host's device, a cell after the other; cells that fail are evidence too."""
    made = work / "evidence.json"

    def collect(ended: Ended) -> Ending:
        jsonio.canonical(_read(made, INSPECTION_BYTES))
        validating.keep_evidence(results.read_text(made, INSPECTION_BYTES).encode(), made.name)
        return Ending(Run.State.SUCCEEDED)

    words = ("--device", run.needs, "--out", str(made), "--family", *VALIDATED, *PROGRESS)
    return Assignment(words, (), limits, collect, module="experiments.validate")


def _as_object(hardware: Any) -> Any:
    return {"device": hardware} if isinstance(hardware, str) else hardware


def _policy(run: Run, work: Path, limits: Limits) -> Assignment | Waits:
    artifact = _about(run)
    if not artifact.kind and (reading := derivation.reading_of(artifact)):
        return Waits(reading)
    given = artifact
    options = _options(run, artifact)
    if _is_captured_first(run, artifact):
        of_step = derivation.step_options(options)
        key = derivation.derive_key(Run.Kind.CAPTURE, of_step, torch_version())
        step = derivation.measured_step(artifact, of_step, run.spec["hardware"])
        step = step or derivation.ready_step(artifact, key)
        if step is None:
            return Waits(derivation.capture_of(artifact, of_step, key))
        given = step
    source, inputs = source_of(given)
    named = named_files(run, options)
    placed = {name: placed_file(one, work, name) for name, one in named.items()}
    workload = {**run.spec["workload"], "source": source, "options": {**options, **placed}}
    if given is not artifact:
        workload["format"] = "auto"
    nodes = node_list_of(run)
    where = {"hardware": {"nodes": placed_list(nodes, work)}} if nodes else {}
    spec = {**run.spec, **where, "workload": workload}
    others = [*named.values(), *([nodes] if nodes else [])]
    inputs += tuple(file for one in others for file in source_of(one)[1])
    asked, told = work / "spec.json", work / "outcome.json"
    asked.write_text(json.dumps(spec))

    def collect(ended: Ended) -> Ending:
        outcome = load_outcome(_read(told, OUTCOME_BYTES))
        portable = {name: portable_source(one) for name, one in named.items()}
        found = _with_options(outcome, portable)
        return _answer(run, artifact, given, _with_nodes(found, nodes) if nodes else found)

    longest = settings.SEARCH_SECONDS[turns.effort_of(run.family, run.policy)]
    words = ("run", str(asked), "--out", str(told), "--search-seconds", f"{longest:g}")
    progress = ("--progress", "json", "--progress-fd", "{progress}")
    return Assignment((*words, *progress), inputs, limits, collect)


def _options(run: Run, artifact: Artifact) -> dict[str, Any]:
    """The run's options with nothing left open, where it was submitted before its artifact was read."""
    given = dict(run.spec["workload"].get("options", {}))
    try:
        policy = registry.policy_class(run.family, run.policy)
        return spell_out_options(artifact, given, policy.fp32_gradients)
    except BadInput:
        return given  # the trial says what is wrong with it


def _is_captured_first(run: Run, artifact: Artifact) -> bool:
    """Whether the run is given the step of the model instead of the model itself."""
    sizes = has_closed_form(zoo_model(artifact.zoo).config) if artifact.zoo in ZOO else False
    tells_sizes = sizes or bool(artifact.summary.get("closed_form"))
    try:
        policy = registry.policy_class(run.family, run.policy)
    except BadInput:
        return False  # the trial says what is wrong with it
    return what_is_read(policy, run.mode, artifact.kind, tells_sizes=tells_sizes) != artifact.kind


def _with_options(outcome: Outcome, options: Mapping[str, str]) -> Outcome:
    workload = outcome.spec["workload"]
    told = {**workload, "options": {**workload["options"], **options}}
    return replace(outcome, spec={**outcome.spec, "workload": told})


def _with_nodes(outcome: Outcome, nodes: Artifact) -> Outcome:
    return replace(outcome, spec={**outcome.spec, "hardware": {"nodes": portable_source(nodes)}})


def _answer(run: Run, artifact: Artifact, given: Artifact, outcome: Outcome) -> Ending:
    """The outcome with the workload's portable name, and the state it means."""
    workload = {**outcome.spec["workload"], "source": portable_source(artifact)}
    spec = {**outcome.spec, "workload": workload}
    provenance = {**outcome.provenance, "sandbox": run.sandbox_tier}
    if given is not artifact:
        provenance["step_sha256"] = given.blob_id
        provenance["model_sha256"] = artifact.blob_id or ""
    stored = replace(outcome, spec=spec, spec_id=jsonio.digest(spec), provenance=provenance)
    return Ending(STATES[outcome.status], outcome.reason or "", stored)


def _read(path: Path, most: int) -> Any:
    """JSON that a trial left. The trial is not trusted: ``BadInput`` when it is not what it should be."""
    text = results.read_text(path, most)
    if "\\u0000" in text or "\\ud" in text.lower():
        text = text.replace("\\u0000", "\\ufffd")
        text = json.dumps(jsonio.loads(text, path.name)).encode("utf-8", "replace").decode()
        text = jsonio.canonical(json.loads(text)).encode("utf-8", "replace").decode()
    found = jsonio.loads(text, path.name)
    if not isinstance(found, dict):
        raise BadInput("not an object", path.name, "a JSON object")
    return found


def diagnosis_of(ended: Ended) -> Diagnosis:
    return Diagnosis(ended.exit_code, ended.signal, ended.peak_bytes, ended.log)


def last_line(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ") if lines else "it said nothing"
