"""Memory runs stored while a plan had ``pool``, ``paging`` and ``artifact`` are drawn and told
like new ones.
"""

from __future__ import annotations

from typing import Any

import pytest

from experiments.memory.interface import load_plan
from tests.experiments.memory.stored_runs import NAMES, stored_run
from tests.webapp.cast import Cast, experiment_with, ready, signed_in
from webapp.runs.memory_figure import memory_view
from webapp.runs.models import RunDocument

#: What the page says of each stored plan, in the words of its time and in today's.
WORDS = {
    "pool": ("kind planned", "model pool"),
    "read_ahead": ("read ahead 8", "model read_ahead_paging, window 8"),
    "release_waiting": ("engine waiting", "model waiting_release, space factor 4"),
}


def as_stored_today(before: dict[str, Any]) -> dict[str, Any]:
    return {**before, "plan": load_plan(before["plan"]).to_json()}


@pytest.mark.parametrize("name", NAMES)
def test_a_run_stored_before_is_drawn_as_it_would_be_today(name: str) -> None:
    before = memory_view(stored_run(name))
    assert before is not None and before.data["ops"]
    assert before == memory_view(as_stored_today(stored_run(name)))


@pytest.mark.parametrize("name", WORDS)
def test_its_page_tells_its_plan(cast: Cast, name: str) -> None:
    run = experiment_with(cast.project, ready(cast.project), succeeded=1).runs.get()
    document = RunDocument.objects.create(run=run, outcome=stored_run(name))
    for outcome, words in zip(
        (stored_run(name), as_stored_today(stored_run(name))), WORDS[name], strict=True
    ):
        document.outcome = outcome
        document.save()
        page = signed_in(cast.vera).get(cast.url(f"runs/{run.pk}/")).content.decode()
        assert "memory-figure" in page and words in page
