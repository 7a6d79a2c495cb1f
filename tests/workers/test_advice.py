"""A question to the advisor, searched by the real program in a trial: its answer is kept with its plans."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.webapp.advice.answers import QUESTION
from tests.webapp.cast import Cast, make_cast, ready
from webapp.advice import services
from webapp.advice.answer import shown_answer
from webapp.runs.models import Run
from workers import sandbox
from workers.dispatcher import register
from workers.gpu import Device
from workers.supervisor import Supervisor

pytestmark = pytest.mark.django_db(transaction=True)
CPU = Device("cpu", "some processor", 2**30)
#: 70 B on 8 GPUs of 80 GiB: its states alone need more than all of them have.
TOO_LARGE = {
    **QUESTION,
    "options": {"batch": 8},
    "hardware": {"cluster": {"node": "dgx-1-v100-16g", "nodes": 1}},
}


@pytest.fixture
def cast(settings, tmp_path: Path) -> Cast:  # type: ignore[no-untyped-def]
    settings.MEDIA_ROOT, settings.BLOB_CACHE = tmp_path / "files", tmp_path / "cache"
    settings.VAR = tmp_path
    return make_cast()


def test_answers_are_kept_and_a_question_may_have_none_that_fits(cast: Cast) -> None:
    fits = services.ask(cast.project, cast.max, ready(cast.project, name="llama2-7b"), QUESTION)
    large = services.ask(cast.project, cast.max, ready(cast.project, name="llama2-70b"), TOO_LARGE)
    slot = Supervisor(register(1, [CPU]), [CPU], sandbox.best_tier(), 2**32, threads=1)
    assert slot.drain() == 2
    told = dict(Run.objects.values_list("artifact__name", "state"))
    assert told == {"llama2-7b": "succeeded", "llama2-70b": "infeasible"}
    for one in (fits, large):
        one.refresh_from_db()
    shown = shown_answer(fits)
    assert [row.plan["letter"] for row in shown.plans] == ["A", "B", "C", "D"]
    assert shown.figure is not None and shown.figure["limit"]["x"] == 80 * 2**30
    assert large.answer["plans"] == []
    assert "nothing fits" in large.answer["finding"]
