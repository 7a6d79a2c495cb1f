"""Changes of advice: asking, keeping the answer, launching the runs behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.utils import timezone

from experiments.core import jsonio
from webapp.accounts.models import Project, User
from webapp.advice.models import Advice
from webapp.artifacts.models import Artifact
from webapp.runs import queue, turns
from webapp.runs.grid import Trial
from webapp.runs.models import Experiment, Run
from webapp.runs.services import hardware_label, submit_experiment


def key_of(artifact: Artifact, question: Mapping[str, Any]) -> str:
    return jsonio.digest({"artifact": artifact.pk, **question})


def find_advice(project: Project, artifact: Artifact, question: Mapping[str, Any]) -> Advice | None:
    """What was asked so before; ``None`` where nobody did."""
    known = Advice.objects.filter(project=project, key=key_of(artifact, question))
    return known.select_related("run", "artifact").first()


@transaction.atomic
def ask(project: Project, user: User, artifact: Artifact, question: Mapping[str, Any]) -> Advice:
    """The advice on the question; a worker searches for it unless it is known or being looked for."""
    found, _ = Advice.objects.get_or_create(
        project=project,
        key=key_of(artifact, question),
        defaults={"artifact": artifact, "question": dict(question), "created_by": user},
    )
    if not found.answer and (found.run is None or found.run.is_final):
        _search(found, user)
    return found


@transaction.atomic
def ask_again(advice: Advice, user: User) -> None:
    """Search anew, for example with a newer revision; the answer of before stays until then."""
    if advice.run is None or advice.run.is_final:
        _search(advice, user)


def _search(advice: Advice, user: User) -> None:
    run = Run(
        project=advice.project,
        artifact=advice.artifact,
        owner=user,
        kind=Run.Kind.ADVISE,
        hardware=hardware_label(advice.question["hardware"]),
        spec={"question": advice.question},
    )
    turns.enqueue([run])
    Advice.objects.filter(pk=advice.pk).update(run=run)
    advice.run = run
    queue.wake()


def keep_answer(run: Run, answer: Mapping[str, Any]) -> None:
    """What the search of ``run`` found."""
    Advice.objects.filter(run=run).update(answer=dict(answer), answered_at=timezone.now())


def launch(advice: Advice, user: User) -> Experiment:
    """The runs behind the answer's plans, as an experiment."""
    trials = [_trial(advice.artifact, plan["spec"]) for plan in advice.answer["plans"]]
    name = f"Plans worth knowing for {advice.artifact}"[:160]
    return submit_experiment(advice.project, user, name=name, trials=trials, request={})


def _trial(artifact: Artifact, spec: Mapping[str, Any]) -> Trial:
    """The run of a plan; where its workload lies is left to the submission."""
    workload = {name: value for name, value in spec["workload"].items() if name != "source"}
    return Trial(artifact, {**spec, "workload": {**workload, "format": "auto"}}, "")
