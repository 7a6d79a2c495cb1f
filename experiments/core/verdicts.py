"""The verdict on a claim: one rule, computed from what the claim's sheet says and what its runs gave.

``docs/verdicts.md`` is the rule in words. A claim is never judged by hand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.core.differences import NO_DIFFERENCE
from experiments.core.figures import Figure
from experiments.core.paper import Claim
from experiments.core.units import significant

REPRODUCED, BY_PROXY, DIRECTION = "reproduced", "reproduced by proxy", "direction only"
NOT_REPRODUCED, FITTED, IDENTITY, FITS = "not reproduced", "fitted", "identity", "fits"
CANNOT, NOT_RUN = "cannot be carried out", "not run"
#: Every verdict with what it means, in the order in which pages count them.
MEANINGS = {
    REPRODUCED: "on the paper's workload, within its tolerance, beyond noise",
    BY_PROXY: "the same on a stand-in that the claim names, at half and double of its free parameter too",
    DIRECTION: "the same sign and at least a third of the published effect, beyond noise",
    NOT_REPRODUCED: "anything else that ran",
    FITTED: "a row that constants were fitted on",
    IDENTITY: "follows from the definition",
    FITS: "the claim only asks whether it fits",
    CANNOT: "cannot be carried out here, for the reason given",
    NOT_RUN: "nothing has been carried out yet",
}
VERDICTS = tuple(MEANINGS)
#: The share of the published effect that a direction needs.
LEAST_SHARE = 1 / 3


@dataclass(frozen=True)
class Verdict:
    """The outcome of comparing a claim with our figure.

    - ``verdict``: one of ``VERDICTS``.
    - ``reason``: the rule with its figures, or why there is none.
    - ``ours``, ``low``, ``high``: our figure, and its interval where it was measured with noise.
    """

    verdict: str
    reason: str
    ours: float | None = None
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        assert self.verdict in VERDICTS, self.verdict


def judge(claim: Claim, ours: Figure, varied: Sequence[Figure | None] = (), noisy: bool = False) -> Verdict:
    """Return the verdict on a claim whose figure is ``ours`` here.

    ``varied`` are the figures at half and double of a stand-in's free parameter, ``None`` where there is no
    answer; a ``noisy`` figure was measured and needs an interval.
    """
    word, reason = _judge(claim, ours, varied, noisy)
    return Verdict(word, reason, ours.value if math.isfinite(ours.value) else None, ours.low, ours.high)


def _judge(claim: Claim, ours: Figure, varied: Sequence[Figure | None], noisy: bool) -> tuple[str, str]:
    if not math.isfinite(ours.value):
        return NOT_REPRODUCED, f"our figure is {ours.value}"
    distance = distance_in_words(claim, ours.value)
    if claim.fitted:
        return FITTED, f"{distance}; constants were fitted on this row"
    if noisy and ours.low is None:
        return NOT_REPRODUCED, f"{distance}, but measured without an interval"
    if is_unseen(claim, ours.low, ours.high):
        return NOT_REPRODUCED, f"{NO_DIFFERENCE}: {_interval_in_words(ours)} holds {claim.neutral:g}"
    others: Sequence[Figure | None] = ()
    if is_met(claim, ours):
        word, more = _met(claim, varied)
        if word:
            return word, distance + more
        distance, others = distance + more, varied
    if _has_direction(claim, ours) and all(one is not None and _has_direction(claim, one) for one in others):
        return DIRECTION, f"{share_of_effect(claim, ours.value):.0%} of the effect; {distance}"
    return NOT_REPRODUCED, distance


def _met(claim: Claim, varied: Sequence[Figure | None]) -> tuple[str, str]:
    """Return the word for a claim that is met, or none and why a stand-in does not count."""
    if claim.asks_only_whether_it_fits:
        return FITS, ""
    if claim.is_identity:
        return IDENTITY, f"; follows from the definition: {claim.identity or 'a closed form of the source'}"
    if not claim.proxy:
        return REPRODUCED, ""
    if not varied:
        what = (
            f"half and double of its {', '.join(claim.free)} are missing" if claim.free else "nothing varied"
        )
        return "", f"; stand-in: {claim.proxy}, {what}"
    shown = " and ".join("no answer" if one is None else f"{one.value:.4g}" for one in varied)
    varied_text = f"at half and double of its {', '.join(claim.free)} {shown}"
    if all(one is not None and is_met(claim, one) for one in varied):
        return BY_PROXY, f"; stand-in: {claim.proxy}, {varied_text}"
    return "", f"; the stand-in ({claim.proxy}) is not stable: {varied_text}"


def is_unseen(claim: Claim, low: float | None, high: float | None) -> bool:
    """Return whether noise hides the effect that a claim is of: its interval holds none."""
    if claim.no_effect or claim.neutral is None or low is None or high is None:
        return False
    return low <= claim.neutral <= high


def figure_in_words(claim: Claim, verdict: Verdict) -> str:
    """Return our figure as tables show it: none where noise hides the effect, empty where there is none."""
    if is_unseen(claim, verdict.low, verdict.high):
        return NO_DIFFERENCE
    return "" if verdict.ours is None else significant(verdict.ours)


def _interval_in_words(ours: Figure) -> str:
    low, high = ours.interval
    return f"the 95% interval, {low:.4g} to {high:.4g},"


def distance_in_words(claim: Claim, ours: float) -> str:
    """``4.2% from the claim, tolerance 10%``, or which side of a bound."""
    assert claim.value is not None
    error = abs(ours - claim.value) / abs(claim.value) if claim.value else abs(ours)
    tolerance = f"tolerance {100 * claim.tolerance:g}%"
    if claim.bound:
        return f"{ours:.4g} where the claim is {claim.bound} {claim.value:.4g}, {tolerance}"
    return f"{error:.1%} from the claim, {tolerance}"


def is_within(claim: Claim, ours: float) -> bool:
    """Return whether ``ours`` lies in the claim's band."""
    low, high = claim.band
    return low <= ours <= high


def is_met(claim: Claim, ours: Figure) -> bool:
    """Return whether ``ours`` lies in the band, and its interval beyond noise.

    That is apart from no effect, or whole in the band of a claim of no effect.
    """
    low, high = ours.interval
    if claim.no_effect:
        return is_within(claim, low) and is_within(claim, high)
    apart = claim.neutral is None or not low <= claim.neutral <= high
    return is_within(claim, ours.value) and apart


def share_of_effect(claim: Claim, ours: float) -> float:
    """Return the share of the published effect that ``ours`` has; negative on the other side of none."""
    assert claim.value is not None and claim.neutral is not None
    return (ours - claim.neutral) / (claim.value - claim.neutral)


def _has_direction(claim: Claim, ours: Figure) -> bool:
    """Return whether it has the same sign, a third of the effect at least, and no noise around none."""
    if claim.no_effect or claim.neutral is None or claim.neutral == claim.value:
        return False
    noise = min(share_of_effect(claim, end) for end in ours.interval)
    return share_of_effect(claim, ours.value) >= LEAST_SHARE and noise > 0
