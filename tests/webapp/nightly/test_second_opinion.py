"""Otava's opinion of nightly steps: asked in its own Python, stored with the change, and done without."""

from __future__ import annotations

import os
import random
import sys

import pytest

from tests.webapp.cast import Place, signed_in
from tests.webapp.nightly.test_changes import NOW, record_step
from webapp.nightly import changes, otava
from webapp.nightly.models import Change, Schedule

#: Stands for Otava: the greatest jump of each series is its step.
GREATEST = """
import json, sys
def step(values):
    return max(range(1, len(values)), key=lambda place: abs(values[place] - values[place - 1]))
print(json.dumps([[step(values)] for values in json.load(sys.stdin)]))
"""


@pytest.mark.parametrize(
    ("script", "told"), [(GREATEST, True), ("print([[0]] * 99)", None), ("print([])", None), ("1 / 0", None)]
)
def test_a_change_says_whether_another_method_sees_it(
    nightly: Schedule,
    ada: Place,
    settings,
    monkeypatch,
    script: str,
    told: bool | None,
) -> None:
    monkeypatch.setattr(otava, "SCRIPT", script)
    settings.OTAVA_PYTHON = sys.executable
    record_step(nightly)
    changes.look(nightly, NOW)
    assert set(Change.objects.values_list("seconded", flat=True)) == {told}
    first = Change.objects.first()
    assert first is not None
    page = signed_in(ada.user).get(ada.url(f"nightly/changes/{first.pk}/")).content.decode()
    assert ("Otava" in page) == (told is not None)


def test_a_step_that_another_method_does_not_see_is_told_all_the_same(
    nightly: Schedule,
    ada: Place,
    settings,
    monkeypatch,
) -> None:
    monkeypatch.setattr(otava, "SCRIPT", "import json, sys\nprint([[] for _ in json.load(sys.stdin)])")
    settings.OTAVA_PYTHON = sys.executable
    record_step(nightly)
    changes.look(nightly, NOW)
    first = Change.objects.first()
    assert first is not None and first.seconded is False and first.state == Change.State.OPEN
    assert (
        "sees none there" in signed_in(ada.user).get(ada.url(f"nightly/changes/{first.pk}/")).content.decode()
    )
    asked = {"export": "csv", "column": ["seconded"]}
    file = signed_in(ada.user).get(ada.url("nightly/changes/"), asked).content.decode().splitlines()
    assert file[0] == "Otava" and set(file[1:]) == {"no"}


def test_without_such_a_python_nobody_is_asked(nightly: Schedule, settings) -> None:
    settings.OTAVA_PYTHON = "/nowhere/python"
    record_step(nightly)
    changes.look(nightly, NOW)
    assert set(Change.objects.values_list("seconded", flat=True)) == {None}


@pytest.mark.skipif(not os.environ.get("OTAVA_PYTHON"), reason="OTAVA_PYTHON names no Python with Otava")
def test_otava_itself_answers() -> None:
    draw = random.Random(1)
    flat = [1 + draw.gauss(0, 0.01) for _ in range(60)]
    stepped = [value * (1 if night < 40 else 1.1) for night, value in enumerate(flat)]
    quiet, found = otava.change_points(os.environ["OTAVA_PYTHON"], [flat, stepped])
    assert not quiet and any(abs(place - 40) <= 3 for place in found)
