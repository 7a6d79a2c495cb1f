"""Files of one family are read beside each other, in whatever order they arrive."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.core.files.base import ContentFile

from tests.experiments.readers.test_g10 import small
from tests.webapp.cast import Cast, make_cast
from webapp.artifacts.models import Artifact
from webapp.artifacts.services import store_upload
from webapp.runs.models import Run
from workers import beside, sandbox
from workers.dispatcher import register
from workers.supervisor import Supervisor

pytestmark = pytest.mark.django_db(transaction=True)

#: Batch 4 is a third of the way from batch 2 to batch 8.
TIMES = {2: [5, 1, 2, 3, 4], 4: [5, 2, 4, 5, 6], 8: [5, 4, 8, 9, 10]}
DOUBT = "every op's time lies on the line between batch 2 and batch 8: interpolated"


@pytest.fixture
def cast(settings, tmp_path: Path) -> Cast:  # type: ignore[no-untyped-def]
    settings.MEDIA_ROOT, settings.BLOB_CACHE = tmp_path / "files", tmp_path / "cache"
    settings.VAR = tmp_path
    return make_cast()


def trace(batch: int) -> bytes:
    content = small() | {"batch": batch}
    content["ops"] = [[op[0], us, *op[2:]] for op, us in zip(content["ops"], TIMES[batch], strict=True)]
    return json.dumps(content).encode()


def upload(cast: Cast, batch: int) -> Artifact:
    return store_upload(cast.project, cast.max, f"Small_{batch}.json", ContentFile(trace(batch)))


def carry_out() -> int:
    return Supervisor(register(1, []), [], sandbox.best_tier(), 2**31, threads=1).drain()


def doubts() -> dict[str, list[str]]:
    return {a.name: [w for w in a.warnings if "line" in w] for a in Artifact.objects.order_by("name")}


def test_the_last_of_three_traces_makes_the_middle_one_doubtful(cast: Cast) -> None:
    for batch in (4, 2):
        upload(cast, batch)
    carry_out()
    assert doubts() == {"Small_2.json": [], "Small_4.json": []}
    upload(cast, 8)
    carry_out()
    assert doubts() == {"Small_2.json": [], "Small_4.json": [DOUBT], "Small_8.json": []}
    assert set(Run.objects.values_list("state", flat=True)) == {"succeeded"}


def test_only_readable_files_of_the_project_and_format_are_siblings_and_none_is_read_twice(
    cast: Cast,
) -> None:
    mine, other, rejected, foreign = (upload(cast, batch) for batch in (2, 4, 8, 8))
    Artifact.objects.update(state="ready", kind="step", format="g10")
    Artifact.objects.filter(pk=rejected.pk).update(state="rejected")
    Artifact.objects.filter(pk=foreign.pk).update(project=cast.foreign)
    mine.refresh_from_db()
    assert beside.siblings(mine) == [other]
    again = beside.readings_again(mine)
    assert [run.artifact for run in again] == [mine, other]
    Run.objects.bulk_create(again)
    assert [run.artifact for run in beside.readings_again(mine)] == [mine]


def test_a_file_that_cannot_be_read_again_stays_what_it_was(cast: Cast, settings) -> None:  # type: ignore[no-untyped-def]
    artifact = upload(cast, 2)
    Artifact.objects.update(state="ready", kind="step", format="g10")
    Run.objects.update(spec={"beside": True})
    settings.READING_SECONDS = 0
    carry_out()
    artifact.refresh_from_db()
    assert (artifact.state, artifact.reason, Run.objects.get().state) == ("ready", "", "failed")
