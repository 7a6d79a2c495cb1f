"""An answer as its page shows it: figure, plans with their marks, settings, and what was rejected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from webapp.advice.figure import figure_of
from webapp.advice.models import Advice
from webapp.runs.services import hardware_label

#: How a rejected line begins that arithmetic alone refused (``experiments.advisor.cluster.ideas``).
REFUSED = "Not evaluated: "


@dataclass(frozen=True)
class ShownPlan:
    """A named plan; ``change`` compares its step time with the chosen one's, ``mark`` is its number."""

    plan: Mapping[str, Any]
    mark: int
    change: float | None


@dataclass(frozen=True)
class ShownAnswer:
    """What the template reads. ``refused`` are plans that arithmetic alone refused, by reason."""

    document: Mapping[str, Any]
    figure: Mapping[str, Any] | None
    plans: tuple[ShownPlan, ...]
    rejected: tuple[Mapping[str, Any], ...]
    refused: tuple[Mapping[str, Any], ...]
    hardware: str
    family: str
    command: str

    @property
    def refused_count(self) -> int:
        return sum(row["plans"] for row in self.refused)

    @property
    def has_mfu(self) -> bool:
        return any(row.plan["mfu"] is not None for row in self.plans)


def shown_answer(advice: Advice) -> ShownAnswer:
    document = advice.answer
    plans, rows = document["plans"], document["rejected"]
    return ShownAnswer(
        document,
        figure_of(document) if len(document["points"]) > 1 and plans else None,
        tuple(_show(number, plan, plans[0]) for number, plan in enumerate(plans)),
        tuple(row for row in rows if not row["idea"].startswith(REFUSED)),
        tuple(
            {**row, "idea": row["idea"].removeprefix(REFUSED)}
            for row in rows
            if row["idea"].startswith(REFUSED)
        ),
        hardware_label(advice.question["hardware"]),
        "memory" if document["facts"]["devices"] == 1 else "parallel",
        command_of(advice),
    )


def _show(number: int, plan: Mapping[str, Any], chosen: Mapping[str, Any]) -> ShownPlan:
    change = plan["seconds"] / chosen["seconds"] - 1 if number and chosen["seconds"] else None
    return ShownPlan(plan, number + 1, change)


def command_of(advice: Advice) -> str:
    """The same question on the command line."""
    question = advice.question
    where, sizes = question["hardware"], question["options"]
    row = where.get("cluster", {}) if isinstance(where, dict) else {}
    words = ["python -m experiments advise", f"zoo:{advice.artifact.zoo}" if advice.artifact.zoo else "FILE"]
    words.append(f"--hardware {row.get('node') or row.get('device') or where}")
    words += [f"--nodes {row['nodes']}"] if row.get("nodes", 1) > 1 else []
    words += [f"--devices {row['devices_per_node']}"] if "devices_per_node" in row else []
    words += [f"--{name} {sizes[name]}" for name in ("batch", "sequence") if name in sizes]
    words += [f"--goal {question['goal']}", f"--margin {question['margin']:g}"]
    if "precision" in sizes:
        words.append(f"""--options '{{"precision": "{sizes["precision"]}"}}'""")
    return " ".join(words)
