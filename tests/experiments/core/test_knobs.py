from dataclasses import dataclass

import pytest

from experiments.core import knobs
from experiments.core.errors import BadInput
from experiments.core.knobs import fixed_knob, knob


@dataclass(frozen=True)
class Oven:
    heat: float = knob(200.0, "temperature", low=50, high=300, unit="C")
    shelf: int = knob(2, "which shelf", low=1, high=4)
    mode: str = knob("fan", "how it heats", choices=("fan", "grill"))
    timer: int | None = knob(None, "minutes", low=1)
    light: bool = knob(True, "lamp on")


def test_defaults_and_given_values_come_back_typed() -> None:
    oven = knobs.load(Oven, {"heat": 180, "timer": 5.0}, "knobs")
    assert knobs.dump(oven) == {"heat": 180.0, "shelf": 2, "mode": "fan", "timer": 5, "light": True}
    assert isinstance(oven.heat, float)
    assert isinstance(oven.timer, int)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"heet": 1}, "unknown field 'heet' = 1"),
        ({"heat": 20}, "knobs.heat: 20.0 is too small (expected at least 50)"),
        ({"heat": 301.5}, "knobs.heat: 301.5 is too large"),
        ({"heat": "hot"}, "knobs.heat: 'hot' has the wrong type (expected a finite float)"),
        ({"heat": float("nan")}, "wrong type"),
        ({"heat": True}, "wrong type"),
        ({"shelf": 1.5}, "knobs.shelf: 1.5 has the wrong type"),
        ({"mode": "boil"}, "'boil' is not a choice (expected one of fan, grill)"),
        ({"light": 1}, "knobs.light: 1 has the wrong type"),
        ({"shelf": None}, "knobs.shelf: None has the wrong type"),
    ],
)
def test_a_bad_knob_is_named_with_its_value(given: dict[str, object], complaint: str) -> None:
    with pytest.raises(BadInput) as caught:
        knobs.load(Oven, given, "knobs")
    assert complaint in str(caught.value)


def test_the_form_knows_type_bounds_and_unit() -> None:
    heat = knobs.describe(Oven)[0]
    assert (heat.name, heat.type, heat.low, heat.high, heat.unit) == ("heat", "float", 50, 300, "C")
    assert knobs.describe(Oven)[3].optional


@dataclass(frozen=True)
class Toaster(Oven):
    heat: float = fixed_knob(250.0)


def test_a_knob_that_a_preset_fixes_is_not_asked_for() -> None:
    assert [knob.name for knob in knobs.describe(Toaster)] == ["shelf", "mode", "timer", "light"]
    assert knobs.load(Toaster, {}, "knobs").heat == 250
    with pytest.raises(BadInput, match="unknown field 'heat' = 180"):
        knobs.load(Toaster, {"heat": 180}, "knobs")
