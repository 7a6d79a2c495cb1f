"""The ladder of the advisor: its order, its figures, what it leaves out, and the row it chooses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("torch")

from experiments.advisor import Advice, advise, ladder, rows, sentences
from experiments.advisor import advice as search
from experiments.core.errors import BadInput, Infeasible
from experiments.core.spec import load_spec
from experiments.run import run
from tests.experiments.advisor.asks import ask, device, model

pytestmark = pytest.mark.torch
SIZES = {"batch": 1, "sequence": 256}
ORDER = ["fused loss", "checkpointing", "8-bit state", "LoRA", "NF4", "offload"]


@pytest.fixture(scope="module", autouse=True)
def _short_searches() -> Iterator[None]:
    """What needs a long search to find that nothing fits is not what is tested here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ladder, "OFFLOAD", (ladder.Way("combined", {"work": 60_000}, adapts=True),))
        yield


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    return model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def lost(source: str) -> Advice:
    """On a device of 100 kB nothing fits, so every row has its figures from memory that suffices."""
    return advise(ask(source, 1e5, **SIZES))


def peaks(advice: Advice) -> list[float]:
    return [row.peak or 0.0 for row in (advice.asked, *advice.rungs)]


def assert_in_order(advice: Advice) -> None:
    """Each rung has the options of those before it and one more thing."""
    assert [row.name for row in advice.rungs] == ORDER
    assert advice.left_out == ()
    options = [row.spec["workload"]["options"] for row in (advice.asked, *advice.rungs)]
    changes = [{n: new[n] for n in new if new[n] != old[n]} for old, new in pairwise(options)]
    optimizer = {"optimizer": "adamw8bit"}
    assert changes == [{"loss": "fused"}, {}, optimizer, {"adapter": "lora"}, {"base": "nf4"}, {}]
    policies = [row.spec["policy"] for row in advice.rungs]
    assert policies == ["baseline", *["selective_recompute"] * 4, "combined"]


def test_rungs_are_added_in_the_order_of_what_they_give_up(lost: Advice) -> None:
    assert_in_order(lost)
    assert [len(row.gives_up) for row in lost.rungs] == [0, 0, 1, 2, 3, 3]


def test_another_order_is_seen(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """NF4 before LoRA has no frozen weights to round."""
    loss, checkpointing, state, adapters, base, offload = search.LADDER
    monkeypatch.setattr(search, "LADDER", (loss, checkpointing, state, base, adapters, offload))
    advice = advise(ask(source, 1e5, **SIZES))
    assert [(one.name, one.reason) for one in advice.left_out] == [
        ("NF4", "no weights are frozen: there are no adapters")
    ]
    with pytest.raises(AssertionError):
        assert_in_order(advice)


def test_every_rung_of_a_language_model_needs_less_than_the_one_before(lost: Advice) -> None:
    found = peaks(lost)
    assert found == sorted(found, reverse=True)
    assert len(set(found)) == len(found)


def test_every_figure_can_be_had_again_from_its_specs(lost: Advice, source: str) -> None:
    roomy = advise(ask(source, peaks(lost)[2] + 1, **SIZES))
    for row in (*lost.rows[:3], *roomy.rows[:3]):
        again = run(load_spec(dict(row.figures_spec)))
        assert again.metrics == row.metrics
        verdict = run(load_spec(dict(row.spec)))
        assert (verdict.status == "ok", verdict.spec_id) == (row.fits, row.spec_id)
        assert (row.figures_spec == row.spec) == row.fits


def test_a_model_that_fits_is_the_answer_at_once(source: str) -> None:
    advice = advise(ask(source, 16e9, **SIZES))
    assert advice.rows == (advice.asked,)
    assert advice.chosen is advice.asked
    assert sentences(advice)[0].startswith("It fits t4-16g as asked: ")


def test_nothing_is_given_up_that_need_not_be(lost: Advice, source: str) -> None:
    """Where checkpointing fits, LoRA would be faster, and is told of, but is not the answer."""
    advice = advise(ask(source, peaks(lost)[2] + 1, **SIZES))
    chosen = advice.chosen
    assert chosen is not None
    assert (chosen.gives_up, chosen.trains) == ((), "all weights")
    same = [row for row in advice.rows if row.fits and not row.gives_up]
    assert chosen.seconds == min(row.seconds or 0.0 for row in same)
    assert len(same) > 1


def test_a_plan_that_takes_what_there_is_leaves_the_margin_free(lost: Advice, source: str) -> None:
    """Offload of the step as it was asked, on a device that lacks little for it."""
    memory = 0.9 * peaks(lost)[0]
    tight, roomy = (advise(ask(source, memory, margin=share, **SIZES)) for share in (0.0, 0.1))
    found = [one.alternatives[0].peak or 0.0 for one in (tight, roomy)]
    assert 0.9 * memory < found[0] <= memory
    assert found[1] <= 0.9 * memory


def test_for_memory_the_smallest_that_fits_is_the_answer(lost: Advice, source: str) -> None:
    """Even where the model fits as it is."""
    advice = advise(ask(source, 16e9, goal="memory", **SIZES))
    assert advice.chosen is not None
    assert advice.chosen.name == "NF4"
    assert advice.chosen.peak == min(peaks(advice)) == peaks(lost)[5]


def test_the_cheapest_step_of_one_device_is_the_fastest(lost: Advice, source: str) -> None:
    size = peaks(lost)[2] + 1
    fastest, cheapest = (advise(ask(source, size, goal=goal, **SIZES)) for goal in ("time", "cost"))
    assert fastest.chosen == cheapest.chosen
    assert "On one device the cheapest step is the fastest: it is paid by the hour." in sentences(cheapest)


def test_where_nothing_fits_the_best_says_by_how_much_it_misses(lost: Advice) -> None:
    assert lost.chosen is None
    smallest = min(row.peak for row in lost.rows if row.peak is not None)
    with pytest.raises(Infeasible, match=r"t4-16g: nothing fits: the smallest, .*too much") as caught:
        lost.refuse_misfits()
    assert caught.value.missing == smallest - 1e5
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("options", "reasons"),
    [
        (
            {"batch": 2, "image": 64},
            {
                "fused loss": "is for a language model with a vocabulary head",
                "8-bit state": "momentum has no form with state in 8 bits",
                "LoRA": "'all-linear' names no layer: there is none beside the head",
                "NF4": "no weights are frozen: there are no adapters",
            },
        ),
        (
            {"batch": 2, "image": 64, "training": False},
            {
                "fused loss": "a step without training has no loss",
                "8-bit state": "a step without training has no optimizer",
                "LoRA": "lora without training",
                "NF4": "no weights are frozen: there are no adapters",
            },
        ),
    ],
)
def test_what_does_not_apply_is_left_out_with_its_reason(
    options: dict[str, Any], reasons: dict[str, str]
) -> None:
    advice = advise(ask("zoo:resnet18", 1e6, **options))
    found = {one.name: one.reason for one in advice.left_out if one.name in reasons}
    assert found == reasons
    assert not {row.name for row in advice.rungs} & set(found)


def test_what_was_asked_for_is_not_added_again(source: str) -> None:
    options = {"loss": "fused", "optimizer": "adamw8bit", "adapter": "dora", "base": "nf4-double"}
    advice = advise(ask(source, 1e5, **SIZES, **options))
    assert {one.name: one.reason for one in advice.left_out} == {
        "fused loss": "fused is what was asked for",
        "8-bit state": "adamw8bit is what was asked for",
        "LoRA": "dora is what was asked for",
        "NF4": "nf4-double is what was asked for",
    }


def test_a_plan_that_changes_the_result_says_so() -> None:
    """Batch normalization of a batch in parts sees a part."""
    plan = {"moves": [], "splits": 2, "notes": {"chosen": "two parts", "caveat": "statistics differ"}}
    assert rows.caveats(plan) == ("statistics differ",)
    assert rows.caveats({"moves": [], "notes": {}}) == ()


def test_a_goal_or_margin_that_is_none_is_bad_input() -> None:
    with pytest.raises(BadInput, match="expected one of time, memory, cost"):
        search.Ask(ask("zoo:mlp", 1e9).workload, "t4-16g", "beauty")
    with pytest.raises(BadInput, match="is no share of memory"):
        search.Ask(ask("zoo:mlp", 1e9).workload, "t4-16g", margin=1.0)


def test_the_answer_as_json_has_every_row_with_its_spec(lost: Advice) -> None:
    found = json.loads(json.dumps(lost.to_json(), allow_nan=False))
    assert list(found) == ["ask", "rows", "chosen", "left_out"]
    assert found["ask"]["hardware"] == device(1e5)
    assert [row["kind"] for row in found["rows"]] == ["asked", *["rung"] * 6, *["alternative"] * 2]
    for row in found["rows"]:
        assert load_spec(row["spec"]).family == "memory"
        assert row["missing_bytes"] == row["metrics"]["peak_memory"]["value"] - 1e5


def test_progress_goes_forward_to_the_end(source: str) -> None:
    seen: list[float] = []
    advise(ask(source, 1e5, **SIZES), lambda fraction, step: seen.append(fraction))
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
