"""The catalog of systems: every policy with its paper, its claims and what became of them in a project."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count
from django.http import Http404

from experiments.core import knobs, registry
from experiments.core.claims import chosen_claims
from experiments.core.errors import BadInput
from experiments.core.knobs import Knob
from experiments.core.paper import Claim, Paper, Verdict
from experiments.core.policy import Policy
from webapp.accounts.models import Project
from webapp.papers.models import ClaimCheck
from webapp.runs.models import Run

NOT_CHECKED = Verdict("not run", "nobody has checked it in this project yet")


@dataclass(frozen=True)
class ClaimRow:
    """A claim beside our figure. ``check`` is the newest stored verdict, ``None`` where there is none."""

    claim: Claim
    verdict: Verdict
    modes: tuple[str, ...]
    hardware: tuple[str, ...]
    check: ClaimCheck | None = None

    @property
    def ratio(self) -> float | None:
        """Our figure over the paper's."""
        if self.verdict.ours is None or not self.claim.value:
            return None
        return self.verdict.ours / self.claim.value

    @property
    def rule(self) -> str:
        """What makes the verdict, before any figure is known."""
        if self.claim.not_run:
            return ""
        direction = (
            ""
            if self.claim.neutral is None
            else f"; direction only on the same side of {self.claim.neutral:g}"
        )
        return f"reproduced within {self.claim.tolerance:.0%} of the paper's figure{direction}"


@dataclass(frozen=True)
class System:
    """A policy that can be used, with its paper, its claims as they stand and its runs in the team."""

    policy: type[Policy]
    paper: Paper | None
    rows: tuple[ClaimRow, ...]
    runs: int
    knobs: tuple[Knob, ...]

    @property
    def name(self) -> str:
        return self.policy.name

    @property
    def family(self) -> str:
        return self.policy.family

    @property
    def can_be_checked(self) -> bool:
        return any(not row.claim.not_run for row in self.rows)

    @property
    def verdicts(self) -> Mapping[str, int]:
        """How many claims have which verdict."""
        return Counter(row.verdict.verdict for row in self.rows)


def systems(project: Project) -> list[System]:
    checks = _newest_checks(project)
    counted = Run.objects.filter(project__team=project.team, kind=Run.Kind.POLICY).order_by()
    counts = {(f, p): n for f, p, n in counted.values_list("family", "policy").annotate(Count("id"))}
    return [
        _system(policy, checks, counts.get((policy.family, policy.name), 0))
        for policy in registry.all_policies()
    ]


def system(project: Project, family: str, name: str) -> System:
    """The system of that name, or 404."""
    try:
        policy = registry.policy_class(family, name)
    except BadInput as error:
        raise Http404(str(error)) from None
    runs = Run.objects.filter(
        project__team=project.team, kind=Run.Kind.POLICY, family=family, policy=policy.name
    )
    return _system(policy, _newest_checks(project), runs.count())


def _newest_checks(project: Project) -> dict[tuple[str, str, str], ClaimCheck]:
    """The newest verdict of each claim in the project."""
    found: dict[tuple[str, str, str], ClaimCheck] = {}
    checks = ClaimCheck.objects.filter(experiment__project=project).select_related("experiment")
    for check in checks.order_by("checked_at", "pk"):
        found[check.family, check.policy, check.claim] = check
    return found


def _system(policy: type[Policy], checks: Mapping[tuple[str, str, str], ClaimCheck], runs: int) -> System:
    owned, paper = chosen_claims(policy.family, policy.name), registry.sheet(policy).paper
    rows = [_row(one.claim, checks.get((policy.family, policy.name, one.claim.id))) for one in owned]
    return System(policy, paper, tuple(rows), runs, knobs.describe(policy))


def _row(claim: Claim, check: ClaimCheck | None) -> ClaimRow:
    if claim.not_run:
        return ClaimRow(claim, Verdict("not run", claim.not_run), (), ())
    verdict = Verdict(check.verdict, check.reason, check.ours) if check else NOT_CHECKED
    rows: Sequence[Mapping[str, Any]] = list(claim.runs.values())
    modes = tuple(dict.fromkeys(str(row.get("mode", "simulated")) for row in rows))
    hardware = tuple(dict.fromkeys(_device(row.get("hardware")) for row in rows))
    return ClaimRow(claim, verdict, modes, hardware, check)


def _device(hardware: Any) -> str:
    if isinstance(hardware, Mapping):
        row = hardware.get("cluster", hardware)
        device = str(row.get("node") or row.get("device", ""))
        return f"{row['nodes']} nodes of {device}" if "nodes" in row else device
    return str(hardware)
