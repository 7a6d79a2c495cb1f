"""Form fields whose comma-separated values make a grid: knobs, workload options, hardware figures, seeds."""

from __future__ import annotations

import re
from typing import Any

from django import forms

from experiments.core import units
from experiments.core.errors import BadInput
from experiments.core.knobs import Knob, check

MOST_VALUES = 64
#: Options of a workload that are asked for at once; the others are under "more".
USUAL_OPTIONS = ("batch", "sequence", "dtype", "precision", "optimizer")
UNIT_SIZES = {
    "KB": units.KB, "MB": units.MB, "GB": units.GB, "TB": units.TB,
    "KIB": units.KIB, "MIB": units.MIB, "GIB": units.GIB, "TIB": units.TIB,
    "US": units.MICROSECOND, "MS": units.MILLISECOND, "S": 1.0, "B": 1.0,
    "GFLOP": units.GFLOP, "TFLOP": units.TFLOP, "PFLOP": units.PFLOP,
}  # fmt: skip
QUANTITY = re.compile(r"([0-9.eE+-]+?)\s*([a-zA-Zµ]+)?(?:/s)?")


def split(text: str, mark: str = ",") -> list[str]:
    """``"1, 2,4"`` -> three words; too many are refused."""
    words = [word.strip() for word in text.split(mark) if word.strip()]
    if len(words) > MOST_VALUES:
        raise forms.ValidationError(f"{len(words)} values; at most {MOST_VALUES}")
    return words


def quantity(text: str) -> float:
    """``"12 GiB"``, ``"16GB/s"`` or a plain number in SI units."""
    found = QUANTITY.fullmatch(text)
    size = UNIT_SIZES.get((found.group(2) or "B").upper()) if found else None
    try:
        number = float(found.group(1)) if found else None
    except ValueError:
        number = None
    if number is None or size is None:
        raise forms.ValidationError(
            f"“{text}” is not a quantity: write for example 12 GiB, 16 GB/s, 5 us, 3e9"
        )
    return number * size


def _convert(knob: Knob, word: str) -> Any:
    """The word in the knob's type; what cannot be converted stays text, and ``check`` says what
    was expected.
    """
    if knob.optional and word.lower() in ("none", "null"):
        return None
    if knob.type == "bool":
        return {"yes": True, "true": True, "no": False, "false": False}.get(word.lower(), word)
    if knob.type not in ("int", "float"):
        return word
    try:
        return float(word)
    except ValueError:
        return word


class GridField(forms.CharField):
    """Values of one knob, comma-separated; empty means the default. Cleans to a list, empty when nothing was
    said. Where a value is itself a list with commas, semicolons stand between the values.
    """

    def __init__(self, knob: Knob, **kwargs: Any) -> None:
        self.knob = knob
        label = knob.name.replace("_", " ") + (f" ({knob.unit})" if knob.unit else "")
        super().__init__(required=False, label=label, help_text=help_of(knob), max_length=2000, **kwargs)
        self.widget.attrs["placeholder"] = _usual(knob)

    def clean(self, value: Any) -> list[Any]:
        words = split(super().clean(value) or "", ";" if self.knob.words else ",")
        try:
            return [check(self.knob, _convert(self.knob, word), self.knob.name) for word in words]
        except BadInput as error:
            expected = f" (expected {error.expected})" if error.expected else ""
            raise forms.ValidationError(f"{error.what}{expected}") from None


def _usual(knob: Knob) -> str:
    """What an empty field stands for."""
    if knob.is_open:
        return "open"
    return "default" if knob.default is None else _word(knob.default)


def _word(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def help_of(knob: Knob) -> str:
    """Meaning, bounds and choices in one line."""
    parts = [knob.help]
    if knob.choices:
        parts.append("one of " + ", ".join(map(str, knob.choices)))
    elif knob.type == "bool":
        parts.append("yes or no")
    elif knob.words:
        parts.append("semicolons between several lists")
    if knob.low is not None and knob.high is not None:
        parts.append(f"{_bound(knob.low)} to {_bound(knob.high)}")
    elif knob.low is not None:
        parts.append(f"at least {_bound(knob.low)}")
    elif knob.high is not None:
        parts.append(f"at most {_bound(knob.high)}")
    return "; ".join(parts)


def _bound(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:g}"


class QuantitiesField(forms.CharField):
    """Sizes and rates with units, comma-separated. Cleans to a list of SI figures."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(required=False, max_length=500, **kwargs)

    def clean(self, value: Any) -> list[float]:
        found = [quantity(word) for word in split(super().clean(value) or "")]
        if any(not 0 < figure < 1e300 for figure in found):
            raise forms.ValidationError("must be a positive finite number")
        return found


class SeedsField(forms.CharField):
    """``0``, ``0, 1, 2`` or ``0-4``. Cleans to a sorted list of distinct seeds."""

    def clean(self, value: Any) -> list[int]:
        seeds: set[int] = set()
        for word in split(super().clean(value)):
            found = re.fullmatch(r"(\d{1,18})(?:\s*-\s*(\d{1,18}))?", word)
            if not found:
                raise forms.ValidationError(f"“{word}” is not a seed: write for example 0 or 0, 1 or 0-4")
            first = int(found.group(1))
            last = int(found.group(2) or first)
            if not first <= last < first + MOST_VALUES:
                raise forms.ValidationError(
                    f"“{word}”: from a smaller to a larger seed, at most {MOST_VALUES}"
                )
            seeds.update(range(first, last + 1))
        return sorted(seeds)


def prefill(value: Any) -> str:
    """A value as one would type it into one of these fields."""
    return "none" if value is None else _word(value)
