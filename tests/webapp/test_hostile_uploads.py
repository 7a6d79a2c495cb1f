"""Bad and odd files through the pages and a worker: refused with a place, or read; nothing dies."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from tests.figures import tell
from tests.hostile_corpus import BAD, ODD
from tests.webapp.cast import Cast, make_cast, signed_in
from tests.webapp.worker import working
from webapp.artifacts.models import Artifact

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
SECONDS = 900
#: Read line by line or word by word: such files differ in what is told, and `test_hostile` reads all of them.
TEXT = (".csv", ".json", ".txt", ".log", ".et")
#: One in so many texts, and of the others (containers, pickles, programs), is uploaded.
TEXTS, OTHERS = (int(word) for word in os.environ.get("LAB_HOSTILE", "24,3").split(","))


def chosen(files: Sequence[Any]) -> list[Any]:
    texts = [file for file in files if file.name.endswith(TEXT)]
    return [file for file in files if file not in texts][::OTHERS] + texts[::TEXTS]


#: Bad without being told what to read it as.
HOSTILE = chosen([file for file in BAD if file.format == "auto"])


@pytest.fixture
def red(settings: Any, tmp_path: Path) -> Cast:
    settings.MEDIA_ROOT = tmp_path / "var" / "files"
    return make_cast()


def uploaded(red: Cast, files: list[Any]) -> list[int]:
    """One artifact for each file, in order; an answer of 500 fails here."""
    client = signed_in(red.max)
    made = []
    for file in files:
        before = set(Artifact.objects.values_list("pk", flat=True))
        answer = client.post(
            red.url("artifacts/upload"), {"files": SimpleUploadedFile(file.name, file.make())}
        )
        assert answer.status_code in (200, 302, 400, 413), (file.name, answer.status_code)
        made += [pk for pk in Artifact.objects.values_list("pk", flat=True) if pk not in before]
    return made


def test_every_bad_file_is_rejected_with_a_reason_and_every_odd_one_is_read(
    red: Cast, tmp_path: Path
) -> None:
    bad, odd = uploaded(red, HOSTILE), uploaded(red, chosen(ODD))
    assert len(bad) >= 15
    assert len(odd) >= 4
    with working(tmp_path) as worker:
        until = time.monotonic() + SECONDS
        while Artifact.objects.filter(state="waiting").exists() and time.monotonic() < until:
            assert worker.poll() is None, "the worker ended"
            time.sleep(0.2)
    states = {row.pk: row for row in Artifact.objects.all()}
    assert [states[pk].name for pk in bad if states[pk].state != "rejected" or not states[pk].reason] == []
    assert [(states[pk].name, states[pk].reason) for pk in odd if states[pk].state != "ready"] == []
    assert signed_in(red.max).get(red.url("artifacts/")).status_code == 200
    tell(rejected=len(bad), read=len(odd))
