"""What the rule of verdicts (``docs/verdicts.md``) asks of every sheet; the evidence has them all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.compilation.interface.tuning import TuningPolicy
from experiments.core import registry
from experiments.core.claim_evidence import load_evidence, missing_claims, newest_evidence
from experiments.core.claims import OwnedClaim, chosen_claims, claim_specs, claim_trials
from experiments.core.completion import complete
from experiments.core.figures import names_in
from experiments.core.metrics import is_noisy
from experiments.core.paper import WIDEST, Claim
from experiments.core.spec import RunSpec
from experiments.core.suites import load_suite

CLAIMS = [owned for owned in chosen_claims(None, None) if not owned.claim.cannot]
EVIDENCE = Path(__file__).resolve().parents[3] / "docs" / "evidence"
#: Units of figures that compare, so that one value of them means "no effect".
COMPARING = ("ratio", "fraction", "of ideal")


def breaches(claim: Claim) -> list[str]:
    """What a sheet's claim does against the rule."""
    assert claim.value is not None
    found, (low, high) = [], claim.band
    by_definition = claim.is_identity or claim.asks_only_whether_it_fits
    if claim.tolerance > WIDEST and not claim.wider:
        found.append("its tolerance is more than 10 % and no reason is given")
    if claim.wider and claim.tolerance <= WIDEST:
        found.append("gives a reason for a tolerance that needs none")
    if claim.unit in COMPARING and claim.neutral is None and not by_definition:
        found.append("compares, and does not say what no effect would be")
    if claim.neutral is not None and low <= claim.neutral <= high and not claim.no_effect:
        found.append(f"its band, {low:g} to {high:g}, holds no effect, {claim.neutral:g}")
    if claim.no_effect and claim.neutral is None:
        found.append("claims no effect, and does not say what that would be")
    if claim.free and not claim.proxy:
        found.append("varies a stand-in that it does not name")
    if sum((claim.fitted, bool(claim.proxy), claim.is_identity, claim.asks_only_whether_it_fits)) > 1:
        found.append("has more than one of proxy, fitted, identity and fits")
    return found


@pytest.mark.parametrize("owned", CLAIMS, ids=[f"{o.policy.name}/{o.claim.id}" for o in CLAIMS])
def test_no_sheet_breaks_the_rule(owned: OwnedClaim) -> None:
    assert breaches(owned.claim) == []
    claim_trials(owned.policy, owned.claim)


@pytest.mark.parametrize(
    ("change", "breach"),
    [
        ({"tolerance": 0.3}, "no reason is given"),
        ({"tolerance": 0.3, "wider": "why"}, "holds no effect"),
        ({"tolerance": 0.05, "wider": "why"}, "needs none"),
        ({"neutral": None}, "does not say what no effect"),
        ({"neutral": 1.5}, "holds no effect"),
        ({"free": ("batch",)}, "does not name"),
        ({"proxy": "a small one", "fitted": True}, "more than one"),
    ],
)
def test_a_sheet_that_breaks_it_is_found(change: dict[str, object], breach: str) -> None:
    right = Claim("c", "t", "w", value=1.4, unit="ratio", neutral=1.0, figure="a.speedup")
    assert breaches(right) == []
    assert breach in " ".join(breaches(replace(right, **change)))  # type: ignore[arg-type]


def test_claims_of_fitted_rows_say_so_and_no_others() -> None:
    """The suite of published rows marks those that the rates of kernels were fitted on, by their times."""
    suite = load_suite("parallel-published")
    fitted = [complete(spec)[0] for title, spec in suite.specs() if title in suite.fitted]
    for owned in CLAIMS:
        of_times = any(is_noisy(name, "measured") for _, name in names_in(owned.claim.figure))
        specs = claim_specs(owned.policy, owned.claim)
        asked = [(specs[name], row) for name, row in owned.claim.runs.items()]
        on_fitted = any(_is_row(spec, row, one) for spec, row in asked for one in fitted)
        assert owned.claim.fitted == (of_times and on_fitted), owned.claim.id


def _is_row(spec: RunSpec, row: Mapping[str, Any], fitted: RunSpec) -> bool:
    """Whether a claim's run, by the options that it gives, is that of the fitted row."""
    if (spec.policy, spec.workload.source, spec.hardware) != (
        fitted.policy, fitted.workload.source, fitted.hardware,
    ):  # fmt: skip
        return False
    given = row["workload"].get("options", {})
    same = all(getattr(fitted.workload.options, name) == value for name, value in given.items())
    return same and complete(spec)[0].knobs == fitted.knobs


def test_no_tuner_is_held_to_a_library_that_lays_its_weights_out_in_every_call() -> None:
    """What a paper claims over a library is a ratio to its faster form: ``speedup`` is over eager alone."""
    tuners = {policy.name for policy in registry.all_policies() if issubclass(policy, TuningPolicy)}
    assert tuners >= {"autotvm", "ansor"}
    handicapped = [
        f"{owned.policy}: {owned.claim.id}"
        for owned in CLAIMS
        if owned.policy in tuners and "speedup" in [name for _, name in names_in(owned.claim.figure or "0")]
    ]
    assert handicapped == []


def test_the_shipped_evidence_has_every_claim_as_it_now_is() -> None:
    """Where this fails: ``python -m experiments claims --run --out FILE --resume`` with the newest file."""
    newest = newest_evidence(EVIDENCE)
    assert newest is not None
    assert missing_claims(load_evidence(newest), chosen_claims(None, None)) == []
