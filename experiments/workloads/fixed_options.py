"""Options that a stored step has for good: it was captured with them, and no option changes it now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.core.errors import BadInput

#: Of these a step's facts tell what it was captured with.
FIXED = ("batch", "sequence", "image", "dtype", "precision", "optimizer")


def fixed_options(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the facts of a step say of ``FIXED`` options; nothing of what they do not tell."""
    return {name: facts[name] for name in FIXED if name in facts}


def refuse_other_options(facts: Mapping[str, Any], given: Mapping[str, Any], name: str) -> None:
    """Raise ``BadInput`` for the first option ``given`` that is not what the step was captured with."""
    for option, captured in fixed_options(facts).items():
        value = given.get(option)
        if value is None or value == captured:
            continue
        had = f"{option} {captured}" if captured is not None else f"no {option}"
        what = f"{option} {value!r:.80} of {name}, a step that was captured with {had}"
        expected = "the option left out, or the model itself, which is captured with any"
        raise BadInput(what, f"options.{option}", expected)
