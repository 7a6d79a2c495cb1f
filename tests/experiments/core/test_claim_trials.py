"""What a claim's verdict takes: repeats of what a clock gives, half and double of a stand-in's parameter."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.core.claims import claim_trials, judge_trials, needs_variation
from experiments.core.errors import BadInput
from experiments.core.figures import ends_of
from experiments.core.paper import Claim
from experiments.core.registry import policy_class
from experiments.core.verdicts import figure_in_words

HARDWARE = {"device": "titan-x-12g", "overrides": {"memory_bytes": 4e9}}
PLAIN = {"workload": {"source": "zoo:vgg16", "options": {"batch": 64}}, "hardware": HARDWARE}
ODD = {"source": "zoo:mlp", "options": {"batch": 3}}
VDNN = policy_class("memory", "vdnn-all")


def claim(**values: Any) -> Claim:
    said: dict[str, Any] = {"id": "c", "text": "t", "where": "w", "value": 2.0, "neutral": 1.0}
    runs = {"ours": PLAIN, "base": {**PLAIN, "policy": "baseline", "hardware": "titan-x-12g"}}
    return Claim(**{**said, "figure": "base.step_time / ours.step_time", "runs": runs, **values})


def figures(ratio: float) -> dict[str, dict[str, float]]:
    return {"ours": {"step_time": 1.0}, "base": {"step_time": ratio}}


def test_a_claim_on_the_papers_workload_is_carried_out_once() -> None:
    (trial,) = claim_trials(VDNN, claim())
    assert (trial.label, sorted(trial.specs)) == ("", ["base", "ours"])


def test_half_and_double_are_of_every_run_and_of_the_memory_where_one_is_named() -> None:
    """The baseline has the whole device: only the named 4 GB are halved and doubled."""
    stand_in = claim(proxy="VGG-16", free=("batch", "memory"))
    trials = claim_trials(VDNN, stand_in)
    assert [trial.label for trial in trials] == ["", "@0.5", "@2"]
    assert [trial.specs["base"].workload.options.batch for trial in trials] == [64, 32, 128]
    assert [trial.specs["base"].hardware for trial in trials] == ["titan-x-12g"] * 3
    capacities = [trial.specs["ours"].hardware["overrides"]["memory_bytes"] for trial in trials]  # type: ignore[index,call-overload]
    assert capacities == [4e9, 2e9, 8e9]
    assert stand_in.runs["ours"]["hardware"]["overrides"]["memory_bytes"] == 4e9


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"free": ("sequence",)}, "sequence None has no half"),
        ({"free": ("batch",), "runs": {"ours": {**PLAIN, "workload": ODD}}}, "batch 3 has no half"),
        ({"free": ("memory",), "runs": {"ours": {**PLAIN, "hardware": "t4-16g"}}}, "names memory_bytes"),
    ],
)
def test_a_parameter_that_cannot_be_varied_is_named(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        claim_trials(VDNN, claim(proxy="VGG-16", **change))


def test_only_a_stand_in_that_meets_its_claim_needs_half_and_double() -> None:
    stand_in = claim(proxy="VGG-16", free=("batch",))
    assert needs_variation(stand_in, [figures(2.1)], {})
    assert not needs_variation(stand_in, [figures(1.7)], {})
    assert not needs_variation(claim(), [figures(2.1)], {})
    met = [figures(2.1), figures(1.9), {"ours": {}, "base": {}}]
    assert judge_trials(stand_in, met, {}).verdict == "not reproduced"
    assert judge_trials(stand_in, [*met[:2], figures(2.0)], {}).verdict == "reproduced by proxy"
    assert judge_trials(stand_in, [figures(1.7), None, None], {}).verdict == "direction only"
    half_missing = judge_trials(stand_in, [figures(2.0), None, figures(2.0)], {})
    assert half_missing.verdict == "direction only"
    assert "half and double of its batch are missing" in half_missing.reason


def test_what_a_clock_gives_is_repeated_with_other_seeds_and_carries_its_interval() -> None:
    """Twice as fast in the mean of 1.5, 2 and 2.5: the interval, 0.76 to 3.24, holds no effect."""
    measured = {name: {**PLAIN, "mode": "measured", "hardware": "local"} for name in ("ours", "base")}
    noisy = claim(runs=measured)
    trials = claim_trials(VDNN, noisy)
    assert [trial.label for trial in trials] == ["", "#1", "#2"]
    assert [trial.specs["ours"].seed for trial in trials] == [0, 1, 2]
    verdict = judge_trials(noisy, [figures(1.5), figures(2.0), figures(2.5)], {})
    assert (verdict.verdict, verdict.ours) == ("not reproduced", 2.0)
    assert verdict.low == pytest.approx(0.758, abs=1e-3)
    sharp = judge_trials(noisy, [figures(2.0), figures(2.1), figures(1.9)], {})
    assert sharp.verdict == "reproduced"
    counted = claim(runs=measured, figure="base.peak_memory / ours.peak_memory")
    assert len(claim_trials(VDNN, counted)) == 1


def speedup(middle: float, low: float, high: float) -> dict[str, dict[str, float]]:
    return {"ours": {"speedup": middle, "speedup_low": low, "speedup_high": high}, "base": {}}


def test_three_repeats_that_agree_by_luck_are_as_noisy_as_each_of_them() -> None:
    """Each says 1.5, from 0.9 to 2.1: Student's interval of the three is nothing, theirs holds 1."""
    measured = {name: {**PLAIN, "mode": "measured", "hardware": "local"} for name in ("ours", "base")}
    noisy = claim(runs=measured, figure="ours.speedup", value=1.5)
    verdict = judge_trials(noisy, [speedup(1.5, 0.9, 2.1)] * 3, {})
    assert (verdict.verdict, verdict.low, verdict.high) == ("not reproduced", 0.9, 2.1)
    assert verdict.reason.startswith("no difference seen")
    assert figure_in_words(noisy, verdict) == "no difference seen"
    clear = judge_trials(noisy, [speedup(1.5, 1.4, 1.6)] * 3, {})
    assert (clear.verdict, clear.low, clear.high) == ("reproduced", pytest.approx(1.4), pytest.approx(1.6))
    before = judge_trials(noisy, [{"ours": {"speedup": value}, "base": {}} for value in (1.5, 1.4, 1.6)], {})
    assert before.verdict == "reproduced", "runs from before ratios had intervals: that of the repeats"
    assert before.low == pytest.approx(1.252, abs=1e-3)


def test_a_figure_of_several_ratios_is_as_wide_as_their_ends_make_it() -> None:
    """A quotient is least where its upper part is least and its lower part greatest: 0.9 over 1.8."""
    metrics = {"a": speedup(1.0, 0.9, 1.2)["ours"], "b": speedup(1.6, 1.5, 1.8)["ours"]}
    assert ends_of("a.speedup / b.speedup", metrics) == (0.5, pytest.approx(0.8))
    assert ends_of("a.speedup - 1", metrics) == (pytest.approx(-0.1), pytest.approx(0.2))
    assert ends_of("a.speedup_low * 2", metrics) is None
