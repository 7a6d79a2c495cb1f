"""Two teams that have one of everything, and who may ask for it: what walks over all addresses need."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from django.core.files.base import ContentFile
from django.db import transaction
from django.test import override_settings

from experiments.client.shown import picture_bytes
from tests.webapp.advice.answers import QUESTION, answer
from tests.webapp.artifacts.test_fit import law, model
from tests.webapp.artifacts.test_profile_page import profiled
from tests.webapp.artifacts.test_workload_pages import job_trace
from tests.webapp.cast import Cast, experiment_with, finished, make_cast, run
from tests.webapp.logged.logs import falling, log
from webapp.accounts import invitations
from webapp.accounts.models import Membership, Role, User
from webapp.advice.services import ask
from webapp.api.services import make_token, revoke
from webapp.artifacts import uploads
from webapp.artifacts.models import Artifact
from webapp.artifacts.services import store_upload
from webapp.nightly.services import create_schedule
from webapp.reports.services import make as make_report
from webapp.runs.models import Run
from webapp.runs.trashing import put_into_trash

#: In the name of whatever is the red team's: what must never stand on a page of somebody else.
POISON = "poison-of-red"
#: An address that no message is sent to: it is refused before.
NOWHERE = "https://127.0.0.1/"


@dataclass(frozen=True)
class Populated:
    """``red`` and ``blue`` have the same things by the names that addresses use for them; ``secrets`` are
    tokens by what they may.
    """

    cast: Cast
    red: dict[str, Any]
    blue: dict[str, Any]
    secrets: dict[str, str]


@contextmanager
def populated(folder: Path) -> Iterator[Populated]:
    """Made once for a whole file of tests and rolled back after it; files lie in ``folder``."""
    with override_settings(MEDIA_ROOT=folder), transaction.atomic():
        cast = make_cast()
        Membership.objects.create(
            team=cast.foreign.team, user=User.objects.create_user("bob", password="pw"), role=Role.VIEWER
        )
        red = things_of(cast, cast.max, POISON)
        blue = things_of(replace(cast, red=cast.foreign.team, project=cast.foreign), cast.sly, "of blue")
        yield Populated(cast, red, blue, _secrets(cast))
        transaction.set_rollback(True)


def things_of(cast: Cast, owner: User, mark: str) -> dict[str, Any]:
    """One of everything in ``cast.project``, which ``owner`` put there; ``mark`` is in every name."""
    team, project = cast.red, cast.project
    artifact = _named(model(cast, law=law()), f"config {mark}")
    others = [job_trace(cast), profiled(cast)]
    experiment = experiment_with(project, artifact, queued=1, running=1)
    experiment.name = f"experiment {mark}"
    experiment.save()
    found = [
        finished(run(experiment, policy, {"step_time": 0.5, "throughput": 4.0}, artifact=artifact))
        for policy in ("baseline", "vdnn-all")
    ]
    upload = store_upload(project, owner, f"upload {mark}.csv", ContentFile(f"of {mark}".encode()))
    advice = ask(project, owner, artifact, {**QUESTION, "options": {}})
    advice.answer = answer()
    advice.save()
    invitation = invitations.token(team, team.memberships.get(role=Role.ADMIN).user, Role.VIEWER)
    trashed = _named(job_trace(cast), f"trashed {mark}")
    trashed.trashed_at = trashed.created_at
    trashed.save()
    gone = run(experiment, "gone", artifact=artifact)
    batch = put_into_trash(project, Run.objects.filter(pk=gone.pk), owner, f"of {mark}")
    assert batch is not None
    return {
        "batch": batch.pk,
        "team": team.slug,
        "project": project.slug,
        "artifact": artifact.pk,
        "artifacts": [artifact.pk, upload.pk, *(_named(one, f"{one.name} {mark}").pk for one in others)],
        "experiment": experiment.pk,
        "run": found[0].pk,
        "member": team.memberships.exclude(role=Role.ADMIN).earliest("pk").pk,
        "upload": uploads.begin(project, owner, f"large {mark}.csv", 9 * 2**20, "large").pk,
        "suite": "memory-gpt2",
        "family": "memory",
        "policy": "vdnn-all",
        "channel": project.channels.create(name=f"channel {mark}", kind="webhook", address=NOWHERE).pk,
        "schedule": create_schedule(project, owner, "memory-gpt2", 2, 0).pk,
        "advice": advice.pk,
        "report": make_report(project, owner, f"report {mark}").pk,
        **_own_run(project, owner, mark),
        "preset": project.presets.create(name=f"preset {mark}", address="family=memory", created_by=owner).pk,
        "token": invitation,
        "invitation": invitations.pending(team).get().pk,
        "int:token": make_token(team, owner, f"token {mark}", Role.MEMBER)[0].pk,
        "sha256": upload.blob_id,
        "trashed": trashed.pk,
    }


def _own_run(project: Any, owner: User, mark: str) -> dict[str, Any]:
    """An own run that logged a table and a picture."""
    table = {"table": {"name": "worst", "step": 1, "columns": ["what"], "rows": [[f"row {mark}"]]}}
    data = base64.b64encode(picture_bytes([[0, 255], [255, 0]])).decode()
    image = {"image": {"name": "seen", "step": 1, "data": data}}
    made = log(project, owner, f"own run {mark}", [*falling(), table, image])
    return {"logged": made.pk, "table": made.tables.get().pk, "image": made.images.get().pk}


def _named(artifact: Artifact, name: str) -> Artifact:
    artifact.name = name
    artifact.save()
    return artifact


def _secrets(cast: Cast) -> dict[str, str]:
    made = {
        role: make_token(cast.red, cast.ada, f"{role} {POISON}", role)[1]
        for role in (Role.VIEWER.value, Role.MEMBER.value, Role.ADMIN.value)
    }
    gone, revoked = make_token(cast.red, cast.ada, f"gone {POISON}", Role.MEMBER)
    revoke(gone)
    foreign = make_token(cast.foreign.team, cast.sly, "of blue", Role.ADMIN)[1]
    return {**made, "revoked": revoked, "foreign": foreign, "made up": "lab_" + "x" * 43}
