"""What a run looks like in a figure: hue and shape of its mechanism, hue and dash of a curve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.core.policy import MECHANISMS
from webapp.accounts.models import Project
from webapp.compare.answers.case import policy_of
from webapp.compare.entries import Entry
from webapp.navigation import project_url

#: Looks of a family's mechanisms in their order: hue of the color-blind-safe set, and shape.
LOOKS = (
    ("plot-1", "circle"),
    ("plot-2", "square"),
    ("plot-3", "diamond"),
    ("plot-5", "triangle-up"),
    ("plot-6", "triangle-down"),
    ("plot-4", "pentagon"),
    ("plot-7", "star"),
    ("plot-8", "hexagon"),
)
#: What has no mechanism: a baseline, or a policy that this version no longer has.
PLAIN, PLAIN_LOOK = "no policy", ("ink-soft", "circle-open")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


def mechanism_of(entry: Entry) -> str:
    policy = policy_of(entry)
    return policy.mechanism if policy and policy.mechanism else PLAIN


def look_of(mechanism: str, family: str) -> dict[str, str]:
    """The same on every page of the family."""
    known = MECHANISMS[family]
    color, symbol = LOOKS[known.index(mechanism) % len(LOOKS)] if mechanism in known else PLAIN_LOOK
    return {"color": color, "symbol": symbol}


def curve_look(index: int) -> dict[str, str]:
    return {"color": f"plot-{index % len(LOOKS) + 1}", "dash": DASHES[index % len(DASHES)]}


def by_mechanism(entries: Sequence[Entry], family: str) -> dict[str, list[Entry]]:
    """Entries by mechanism, in the family's order, those without one last."""
    order = {name: place for place, name in enumerate(MECHANISMS[family])}
    found: dict[str, list[Entry]] = {}
    for entry in sorted(entries, key=lambda entry: order.get(mechanism_of(entry), len(order))):
        found.setdefault(mechanism_of(entry), []).append(entry)
    return found


def addresses(entries: Sequence[Entry], project: Project) -> list[str]:
    """Where a click on each leads; empty for what has no page."""
    return [project_url(project, "runs:run", run=one.run.pk) if one.has_page else "" for one in entries]


def figure_json(title: str, kind: str, x: tuple[str, str], y: tuple[str, str], **more: Any) -> dict[str, Any]:
    """A figure in the form that ``plots.js`` draws; axes are (label, unit)."""
    labels = {"x_label": x[0], "x_unit": x[1], "y_label": y[0], "y_unit": y[1]}
    return {"title": title, "kind": kind, **labels, "log": "", "sampled": None, **more}
