"""The catalog of systems: every policy with its paper, its claims and what became of them in a project."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count
from django.http import Http404

from experiments.core import knobs, registry
from experiments.core.claim_evidence import Key, key_of
from experiments.core.claims import OwnedClaim, chosen_claims
from experiments.core.differences import NO_DIFFERENCE
from experiments.core.errors import BadInput
from experiments.core.knobs import Knob
from experiments.core.paper import Claim, Paper
from experiments.core.policy import Policy
from experiments.core.verdicts import CANNOT, NOT_RUN, VERDICTS, Verdict, is_unseen
from webapp.accounts.models import Project
from webapp.papers.models import ClaimCheck, ShippedVerdict
from webapp.papers.tally import TONES, Tally
from webapp.runs.models import Run
from webapp.runs.services import hardware_label

NOT_CHECKED = Verdict(NOT_RUN, "nobody has checked it in this project yet")


@dataclass(frozen=True)
class Verdicts:
    """What is known of claims: the newest verdict of the project, and what shipped with the release."""

    own: Mapping[Key, ClaimCheck]
    shipped: Mapping[Key, ShippedVerdict]

    def of(self, owned: OwnedClaim) -> ClaimCheck | ShippedVerdict | None:
        """The project's own verdict before what shipped, and that only of the claim as it now is.

        A check whose runs gave no verdict hides none.
        """
        family, _, claim = key = key_of(owned)
        check = self.own.get((family, owned.policy.name, claim))
        shipped = self.shipped.get(key)
        if shipped and shipped.digest != owned.claim.digest:
            shipped = None
        return shipped if shipped and check and check.verdict == NOT_RUN else check or shipped


@dataclass(frozen=True)
class ClaimRow:
    """A claim next to our figure.

    ``check`` is the project's newest verdict, ``shipped`` the release's where the project has none.
    """

    claim: Claim
    verdict: Verdict
    modes: tuple[str, ...]
    hardware: tuple[str, ...]
    check: ClaimCheck | None = None
    shipped: ShippedVerdict | None = None

    @property
    def simulated_on(self) -> str:
        """The hardware of all its runs as one label, for the badge of its mode."""
        return " + ".join(self.hardware)

    @property
    def is_unseen(self) -> bool:
        """Whether noise hides the effect, so that there is no figure to show."""
        return is_unseen(self.claim, self.verdict.low, self.verdict.high)

    @property
    def ours(self) -> float | str | None:
        """Our figure, or the words in its place."""
        return NO_DIFFERENCE if self.is_unseen else self.verdict.ours

    @property
    def ratio(self) -> float | None:
        """Our figure over the paper's."""
        if self.verdict.ours is None or not self.claim.value or self.is_unseen:
            return None
        return self.verdict.ours / self.claim.value

    @property
    def difference(self) -> float | None:
        """Our figure less the paper's, of the paper's."""
        return None if self.ratio is None else self.ratio - 1

    @property
    def distance(self) -> float | None:
        """How far our figure is from the paper's, of the paper's; 0 for a bound that is kept."""
        if self.ratio is None:
            return None
        low, high = self.claim.band
        is_kept = bool(self.claim.bound) and low <= (self.verdict.ours or 0) <= high
        return 0.0 if is_kept else self.difference

    @property
    def tone(self) -> str:
        return TONES[self.verdict.verdict]

    @property
    def rule(self) -> str:
        """What makes the verdict, before any figure is known."""
        claim = self.claim
        if claim.cannot:
            return ""
        return "; ".join((_band(claim), *_conditions(claim, self.verdict.reason)))


def _band(claim: Claim) -> str:
    if claim.bound:
        return f"met {claim.bound} {claim.value:.4g}, within {100 * claim.tolerance:g} %"
    reason = f" ({claim.wider})" if claim.wider else ""
    return f"met within {100 * claim.tolerance:g} % of the paper's figure{reason}"


def _conditions(claim: Claim, reason: str) -> Iterator[str]:
    """What else makes the verdict, where its reason does not say so."""
    if claim.proxy and claim.proxy not in reason:
        varied = f", at half and double of its {', '.join(claim.free)} too" if claim.free else ""
        yield f"stand-in: {claim.proxy}{varied}"
    if claim.fitted and not reason:
        yield "constants were fitted on this row"
    if claim.no_effect:
        yield "claims that nothing, or next to nothing, changes"
    elif claim.neutral is not None:
        yield f"direction only from a third of the effect, none being {claim.neutral:g}"


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
        return any(not row.claim.cannot for row in self.rows)

    @property
    def furthest(self) -> float | None:
        """The largest distance of a figure of ours from the paper's, with its sign."""
        distances = [row.distance for row in self.rows if row.distance is not None]
        return max(distances, key=abs, default=None)

    @property
    def tally(self) -> Tally:
        return Tally(self.verdicts)

    @property
    def words(self) -> str:
        """What a search looks in."""
        paper = self.paper
        told = (paper.title, paper.decides, paper.venue, *paper.authors) if paper else ()
        return " ".join([self.name, self.family, self.policy.summary(), *told]).lower()

    @property
    def verdicts(self) -> Mapping[str, int]:
        """How many claims have which verdict, in the order of the rule."""
        return in_order(Counter(row.verdict.verdict for row in self.rows))


def in_order(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts by verdict in the order of the rule, without those that are none."""
    return {word: counts[word] for word in VERDICTS if counts.get(word)}


def count_claims(found: Iterable[System]) -> dict[str, int]:
    """How many claims of all these systems have which verdict; one that two policies share counts once."""
    rows = {
        (system.policy.__module__, row.claim.id): row.verdict.verdict
        for system in found
        for row in system.rows
    }
    return in_order(Counter(rows.values()))


def systems(project: Project) -> list[System]:
    known = _verdicts(project)
    counted = Run.objects.filter(project__team=project.team, kind=Run.Kind.POLICY).order_by()
    counts = {(f, p): n for f, p, n in counted.values_list("family", "policy").annotate(Count("id"))}
    return [
        _system(policy, known, counts.get((policy.family, policy.name), 0))
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
    return _system(policy, _verdicts(project), runs.count())


def _verdicts(project: Project) -> Verdicts:
    """The newest verdict of each claim in the project, and the shipped ones."""
    own: dict[Key, ClaimCheck] = {}
    checks = ClaimCheck.objects.filter(experiment__project=project).select_related("experiment")
    for check in checks.order_by("checked_at", "pk"):
        own[check.family, check.policy, check.claim] = check
    shipped = {(row.family, row.policy, row.claim): row for row in ShippedVerdict.objects.all()}
    return Verdicts(own, shipped)


def shipped_revision() -> str:
    """The revision of the newest verdict that shipped; empty where none did."""
    newest = ShippedVerdict.objects.exclude(revision="").order_by("-checked_at").first()
    return newest.revision if newest else ""


def _system(policy: type[Policy], known: Verdicts, runs: int) -> System:
    owned, paper = chosen_claims(policy.family, policy.name), registry.sheet(policy).paper
    rows = tuple(_row(one.claim, known.of(one)) for one in owned)
    return System(policy, paper, rows, runs, knobs.describe(policy))


def _row(claim: Claim, found: ClaimCheck | ShippedVerdict | None) -> ClaimRow:
    if claim.cannot:
        return ClaimRow(claim, Verdict(CANNOT, claim.cannot), (), ())
    verdict = (
        Verdict(found.verdict, found.reason, found.ours, found.low, found.high) if found else NOT_CHECKED
    )
    rows: Sequence[Mapping[str, Any]] = list(claim.runs.values())
    modes = tuple(dict.fromkeys(str(row.get("mode", "simulated")) for row in rows))
    hardware = tuple(dict.fromkeys(hardware_label(row.get("hardware", "")) for row in rows))
    check = found if isinstance(found, ClaimCheck) else None
    shipped = found if isinstance(found, ShippedVerdict) else None
    return ClaimRow(claim, verdict, modes, hardware, check, shipped)
