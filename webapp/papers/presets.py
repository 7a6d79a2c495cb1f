"""Systems whose published artifact does not keep the paper's own limits: both ways of running them, beside
the claims.
"""

from __future__ import annotations

from dataclasses import dataclass

from webapp.papers.catalog import ClaimRow, System

#: What such a policy's knob is called, and how the id of a claim ends that is checked by the artifact's
#: rules.
KNOB, SUFFIX = "preset", "-artifact"
#: The knob of the variants whose allocator, in the artifact, spans more than the device.
SPAN = "space_factor"


@dataclass(frozen=True)
class Pair:
    """One published figure: our row under real capacities, and our row by the artifact's rules."""

    paper: ClaimRow | None
    artifact: ClaimRow | None

    @property
    def either(self) -> ClaimRow:
        row = self.artifact or self.paper
        assert row is not None
        return row


def pairs(system: System) -> tuple[Pair, ...]:
    """The claims of a system with presets, each figure once; empty for any other system."""
    if not any(knob.name == KNOB for knob in system.knobs):
        return ()
    found: dict[str, dict[str, ClaimRow]] = {}
    for row in system.rows:
        if not row.claim.cannot:
            found.setdefault(row.claim.id.removesuffix(SUFFIX), {})[_preset(row)] = row
    return tuple(Pair(rows.get("paper"), rows.get("artifact")) for rows in found.values())


def _preset(row: ClaimRow) -> str:
    """``artifact`` where a run of the claim asks for its rules; the claim's own id only pairs it."""
    asked = {run.get("knobs", {}).get(KNOB, "paper") for run in row.claim.runs.values()}
    return "artifact" if "artifact" in asked else "paper"


def span_of(system: System) -> float | None:
    """How many times the device's memory the artifact's allocator spans; ``None`` where it keeps to the
    device.
    """
    return next((float(knob.default) for knob in system.knobs if knob.name == SPAN), None)
