"""What is expensive is done once: a model's Step is captured in a run that all its other runs share."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from experiments.core import jsonio
from experiments.core.errors import BadInput
from experiments.core.options import NOT_OF_THE_STEP
from experiments.core.precision import FULL, MIXED
from experiments.hardware import resolve
from experiments.models.catalog import ZOO, zoo_model
from experiments.workloads.transformer_parameters import EXPERTS
from webapp.accounts.models import User
from webapp.artifacts.models import Artifact
from webapp.artifacts.step_options import spell_out_options
from webapp.runs import turns
from webapp.runs.models import Run

#: How a step says that it was timed on a processor (``experiments.profiling.timing.device_name``).
CPU = "cpu:"
LIVING = (Run.State.QUEUED, Run.State.RUNNING)


def step_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that decide a step, spelled without those left open."""
    return {name: value for name, value in given.items() if name not in NOT_OF_THE_STEP and value is not None}


def derive_key(kind: str, options: dict[str, Any], torch: str, device: str = "") -> str:
    """Under which a Step is found again; ``device`` is what it was timed on."""
    return jsonio.digest({"kind": kind, "options": options, "torch": torch, "device": device})


def ready_step(model: Artifact, key: str) -> Artifact | None:
    found = model.derived.filter(derive_key=key, state=Artifact.State.READY).select_related("blob")
    return found.first()


def measured_step(model: Artifact, options: dict[str, Any], hardware: Any) -> Artifact | None:
    """The newest Step of ``model`` with these options whose ops were timed on the very device that is
    simulated. What either leaves open is the model's own.
    """
    device, asked = device_name(hardware), spell_out_options(model, options)
    profiled = model.derived.filter(
        state=Artifact.State.READY, trashed_at=None, summary__facts__timing="measured"
    )
    for step in profiled.select_related("blob").order_by("-id"):
        timed_there = device and device == device_name(step.summary["facts"].get("timed_on"))
        if timed_there and spell_out_options(model, step.summary["options"]) == asked:
            return step
    return None


def device_name(hardware: Any) -> str:
    """The spec sheet of the one device in a RunSpec's ``hardware``, or of what a step was timed on; "" where
    none.

    A GPU is known by the product name that its driver reports. A processor has no sheet of its own:
    ``cpu:<name>`` is on the sheet that stands for any CPU.
    """
    if isinstance(hardware, Mapping):
        row = hardware.get("cluster", hardware)
        hardware = row.get("device", row.get("node"))
    if isinstance(hardware, str) and hardware.startswith(CPU):
        hardware = CPU.rstrip(":")
    try:
        return resolve(hardware).device.name if isinstance(hardware, str) else ""
    except BadInput:
        return ""


@transaction.atomic
def capture_of(model: Artifact, options: dict[str, Any], key: str = "", owner: User | None = None) -> Run:
    """The living capture run of ``model`` with ``options``, queued now where there is none.

    Without a ``key`` the step has that of the torch which captures it.
    """
    Artifact.objects.select_for_update().get(pk=model.pk)
    spec = {"workload": {"options": options}, **({"derive_key": key} if key else {})}
    asked_for = Q(spec=spec) | Q(spec={**spec, turns.LAW: True})
    living = captures_of(model).filter(asked_for, state__in=LIVING).first()
    if living is not None:
        return living
    asked = _capture(model, spec, owner.pk if owner else None)
    turns.enqueue([asked])
    return asked


def captures_of(model: Artifact) -> QuerySet[Run]:
    """Those that were made or will be soon: not idle ones that wait, since nobody knows for how long."""
    captures = Run.objects.filter(artifact=model, kind=Run.Kind.CAPTURE)
    return captures.exclude(state=Run.State.QUEUED, priority=turns.IDLE)


def _capture(model: Artifact, spec: dict[str, Any], owner: int | None = None, priority: int = 0) -> Run:
    is_idle = priority == turns.IDLE
    return Run(
        project=model.project,
        artifact=model,
        owner_id=owner or model.created_by_id,
        kind=Run.Kind.CAPTURE,
        spec=spec,
        priority=priority,
        not_before=timezone.now() + timedelta(seconds=settings.IDLE_SECONDS) if is_idle else None,
    )


#: Parameters of the largest model that is captured without being asked for.
LARGEST_AT_ONCE = 200e9
#: Formats whose programs have the type that they were exported with.
OF_ONE_TYPE = ("onnx", "pt2")


def is_worth_a_capture(model: Artifact) -> bool:
    """Whether a model's step is captured as soon as it was read, so that its page can say what it needs.

    Not a mixture of experts, whose captures take minutes, and not what has no training step.
    """
    held = model.summary.get("parameters") or ()
    has_experts = any(one["module"] == EXPERTS for one in held)
    trains = not (model.zoo in ZOO and zoo_model(model.zoo).evaluation_only)
    few = 0 < sum(one["parameters"] for one in held) <= LARGEST_AT_ONCE
    return model.kind == "model" and few and trains and not has_experts


def first_capture(model: Artifact, torch: str) -> Run:
    """The run, not stored yet, that captures the step which the model has by default and tells its law."""
    return _capture_with_law(model, {}, torch, turns.PRIORITIES[Run.Kind.CAPTURE])


def second_capture(run: Run, torch: str) -> tuple[Run, ...]:
    """After the last ``run`` for the step that a model has by default: the same step in a type of the other
    width, where the model has one. Not before, since the page waits for the first.
    """
    model = run.artifact
    assert model is not None
    usual = spell_out_options(model, {})
    is_usual = run.spec["workload"]["options"] == step_options(usual)
    if not (is_usual and usual.get("precision") and is_worth_a_capture(model)):
        return ()
    other = MIXED if usual["precision"] == FULL else FULL
    made = _capture_with_law(model, {"precision": other}, torch, turns.IDLE)
    is_new = model.format not in OF_ONE_TYPE and ready_step(model, made.spec["derive_key"]) is None
    return (made,) if is_new else ()


def _capture_with_law(model: Artifact, given: Mapping[str, Any], torch: str, priority: int) -> Run:
    options = step_options(spell_out_options(model, given))
    key = derive_key(Run.Kind.CAPTURE, options, torch)
    spec = {"workload": {"options": options}, "derive_key": key, turns.LAW: True}
    return _capture(model, spec, priority=priority)


def capture_law(run: Run) -> Run:
    """The run, not stored yet, that tells the law of the memory of what ``run`` captured."""
    assert run.artifact is not None
    return _capture(run.artifact, {**run.spec, turns.LAW: True}, run.owner_id)


def measure_forms(run: Run) -> Run:
    """The run, not stored yet, that measures other updates and forms of training, after the law."""
    assert run.artifact is not None
    spec = {name: value for name, value in run.spec.items() if name != turns.LAW}
    return _capture(run.artifact, {**spec, turns.FORMS: True}, run.owner_id, turns.IDLE)


def reading_of(artifact: Artifact) -> Run | None:
    """The run that reads ``artifact``, while it lives."""
    return Run.objects.filter(artifact=artifact, kind=Run.Kind.INSPECT, state__in=LIVING).first()


def store_step(run: Run, step: dict[str, Any], blob: Any) -> Artifact:
    """The Step that ``run`` made of its model, under its key; made twice, the first stays."""
    model = run.artifact
    assert model is not None
    timed = "profiled" if run.kind == Run.Kind.PROFILE else "captured"
    told = {
        "project": model.project,
        "name": f"{model.name} ({timed} step)"[:255],
        "blob": blob,
        "state": Artifact.State.READY,
        "kind": "step",
        "format": "step",
        "summary": step["summary"],
    }
    made, is_new = Artifact.objects.get_or_create(
        parent=model, derive_key=step["key"], source=Artifact.Source.DERIVED, defaults=told
    )
    if not is_new:
        for name, value in told.items():
            setattr(made, name, value)
        made.save(update_fields=list(told))  # these alone: a joined host may write no others
    return made
