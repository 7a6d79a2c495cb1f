"""Cases of a test of which the suite carries out the first ones, and `./lab harden variants` all."""

from __future__ import annotations

import os
from typing import TypeVar

Case = TypeVar("Case")
ALL = bool(os.environ.get("LAB_VARIANTS"))


def variants(*cases: Case, kept: int = 1) -> list[Case]:
    """Return the first ``kept`` of the cases, each of which goes a way of its own; the others vary them."""
    return list(cases if ALL else cases[:kept])
