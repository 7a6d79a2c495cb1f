"""Rules as a user writes them: what is divided along which axes of a mesh, ``NAME:AXES``
separated by spaces.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from experiments.core.errors import BadInput


def axis_rules(text: str, names: str, axes: Sequence[str], what: str, where: str) -> dict[str, str]:
    """Return axes by name, for names that match the pattern ``names``.

    ``BadInput`` says what is not ``what`` (a rule, ...).
    """
    found: dict[str, str] = {}
    for entry in text.split():
        name, _, axis = entry.partition(":")
        if not re.fullmatch(names, name) or axis not in axes:
            raise BadInput(
                f"{entry!r:.80} is not {what}", where, f"NAME:AXES, where AXES is {' or '.join(axes)}"
            )
        if name in found:
            raise BadInput(f"{name:.80} has two axes", where, "one rule for each name")
        found[name] = axis
    return found
