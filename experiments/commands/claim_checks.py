"""Carries out the runs of claims, each once however many claims name it, and judges what they gave."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from experiments.core.claim_evidence import claim_row
from experiments.core.claims import (
    ClaimTrial,
    OwnedClaim,
    TrialFigures,
    claim_trials,
    factors,
    figure_metrics,
    judge_trials,
    needs_variation,
)
from experiments.core.errors import BadInput
from experiments.core.paper import Claim
from experiments.core.progress import Progress, part
from experiments.core.spec import RunSpec
from experiments.core.verdicts import CANNOT, NOT_RUN, Verdict
from experiments.estimates import CLOSED_FORMS
from experiments.run import revision, run

#: What a run can end in that is no answer; the other claims are still carried out.
FAILURES = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, OSError, RuntimeError,
    TypeError, ValueError,
)  # fmt: skip


class ClaimChecks:
    """Checks claims one after the other; ``mode`` leaves out claims with runs of the other mode."""

    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode
        self._known: dict[str, Mapping[str, float]] = {}

    def row(self, owned: OwnedClaim, progress: Progress) -> dict[str, Any]:
        """Return the claim's row of the evidence: verdict, revision, moment and how long it took."""
        began = time.perf_counter()
        verdict = self.verdict(owned, progress)
        return {
            **claim_row(owned, verdict),
            "digest": owned.claim.digest,
            "revision": revision(),
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(time.perf_counter() - began, 3),
        }

    def verdict(self, owned: OwnedClaim, progress: Progress) -> Verdict:
        claim = owned.claim
        if claim.cannot:
            return Verdict(CANNOT, claim.cannot)
        others = {str(row.get("mode", "simulated")) for row in claim.runs.values()} - {self.mode}
        if self.mode and others:
            return Verdict(NOT_RUN, f"has {', '.join(sorted(others))} runs; --mode {self.mode} left it out")
        try:
            return self._check(owned, progress)
        except BadInput as error:
            return Verdict(NOT_RUN, str(error))
        except FAILURES as error:
            return Verdict(NOT_RUN, f"its run failed: {type(error).__name__}: {error}".splitlines()[0])

    def _check(self, owned: OwnedClaim, progress: Progress) -> Verdict:
        """Carry out what the verdict needs: half and double only of a stand-in that meets the claim."""
        trials = claim_trials(owned.policy, owned.claim)
        first = len(trials) - len(factors(owned.claim))
        found: list[TrialFigures | None] = [*self._carry_out(trials[:first], owned.claim, progress)]
        if needs_variation(owned.claim, [one for one in found if one is not None], CLOSED_FORMS):
            found += self._carry_out(trials[first:], owned.claim, progress)
        else:
            found += [None] * (len(trials) - first)
        return judge_trials(owned.claim, found, CLOSED_FORMS)

    def _carry_out(
        self, trials: Sequence[ClaimTrial], claim: Claim, progress: Progress
    ) -> list[TrialFigures]:
        count = sum(len(trial.specs) for trial in trials)
        done = 0
        found: list[TrialFigures] = []
        for trial in trials:
            figures: dict[str, Mapping[str, float]] = {}
            for name, spec in trial.specs.items():
                span = part(progress, done / count, (done + 1) / count)
                figures[name] = self._answer(spec, trial, _with_name(span, claim))
                done += 1
            found.append(figures)
        return found

    def _answer(self, spec: RunSpec, trial: ClaimTrial, progress: Progress) -> Mapping[str, float]:
        """Return a run's figures; none where half or double of a stand-in's parameter cannot be asked for."""
        try:
            return self._figures(spec, progress)
        except BadInput:
            if trial.factor == 1:
                raise
            return {}

    def _figures(self, spec: RunSpec, progress: Progress) -> Mapping[str, float]:
        if spec.spec_id not in self._known:
            self._known[spec.spec_id] = figure_metrics(run(spec, progress))
        return self._known[spec.spec_id]


def _with_name(progress: Progress, claim: Claim) -> Progress:
    return lambda fraction, step: progress(fraction, f"{claim.id}: {step}")
