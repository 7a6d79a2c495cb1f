"""How many sequences each request has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Branches:
    """``count`` sequences of each request, which are ``beams`` of a search or independent."""

    count: int
    beams: bool
