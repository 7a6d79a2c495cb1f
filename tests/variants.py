"""Cases of a test of which the suite carries out the first ones, and `./lab harden variants` all."""

from __future__ import annotations

import os
from typing import TypeVar

Case = TypeVar("Case")
ALL = bool(os.environ.get("LAB_VARIANTS"))


def variants(*cases: Case, kept: int = 1) -> list[Case]:
    """The first ``kept`` of the cases, which go another way than one another; the others vary them."""
    return list(cases if ALL else cases[:kept])
