"""Advice for several devices: what is chosen, what is named next to it, and why the rest is not."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from experiments.advisor import Answer, Ask, ClusterAdvice, advise, answer_of
from experiments.advisor.cluster.candidates import Candidate
from experiments.advisor.cluster.choice import choose
from experiments.advisor.cluster.document import _next_best
from experiments.advisor.cluster.space import resolve_workload
from experiments.advisor.cluster.trials import PlanTrial
from experiments.core.errors import BadInput, Infeasible
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload, load_spec
from experiments.parallel.planning.transformers.plan import Degrees
from experiments.run import run

GIB = 2**30


@cache
def seven_billion(goal: str = "time") -> ClusterAdvice:
    """Llama 2 7B on the eight H100 of a node."""
    workload = Workload("zoo:llama2-7b", options=WorkloadOptions(batch=128))
    found = advise(Ask(workload, "dgx-h100", goal))
    assert isinstance(found, ClusterAdvice)
    return found


@cache
def answer() -> Answer:
    return answer_of(seven_billion())


def test_7b_on_eight_h100_is_data_parallel_with_zero() -> None:
    """What practitioners run: no tensor or pipeline parallelism, states divided."""
    choice = seven_billion().choice
    assert choice is not None and choice.keeps_margin
    layout = choice.chosen.candidate.layout
    assert (layout.tensor, layout.pipeline) == (1, 1)
    assert layout.zero >= 1
    assert choice.chosen.candidate.policy in ("zero", "fsdp")
    assert "no tensor or pipeline parallelism" in answer().finding


def test_what_is_answered_is_what_its_runs_say() -> None:
    """Every named plan's spec is carried out again: it fits, with the figures of the answer."""
    for plan in answer().plans:
        outcome = run(load_spec(dict(plan.spec)))
        assert outcome.status == "ok"
        assert outcome.metrics["step_time"]["value"] == plan.seconds
        assert outcome.metrics["peak_memory_per_device"]["value"] == plan.peak <= answer().capacity


def test_three_alternatives_are_on_the_front_and_leaner_or_faster() -> None:
    chosen, *others = answer().plans
    assert len(others) == 3
    for plan in others:
        assert plan.peak < chosen.peak or plan.seconds < chosen.seconds
        assert plan.why
    assert chosen.peak <= answer().allowed < answer().capacity
    assert {point.letter for point in answer().points if point.letter} == set("ABCD")
    assert any(not point.fits and point.peak > answer().capacity for point in answer().points)


def test_all_plans_are_counted_once_as_chosen_or_rejected() -> None:
    counted = sum(row["plans"] for row in answer().rejected)
    assert counted == answer().facts["plans"] - 1
    whole = next(row for row in answer().rejected if row["idea"] == "Data parallel, states whole")
    assert "GiB at least" in whole["reason"] and "too much" in whole["reason"]


def test_the_reasons_say_what_dividing_the_states_frees() -> None:
    first = answer().reasons[0]
    assert "ZeRO" in first["what"]
    assert "frees" in first["why"] and "would be needed" in first["why"]


def test_for_memory_the_smallest_simulated_peak_is_the_answer() -> None:
    found = seven_billion("memory")
    assert found.choice is not None
    assert found.choice.chosen.peak == min(trial.peak for trial in found.trials if trial.fits)
    reasons = {row.idea: row.reason for row in found.rejected}
    assert "the leanest" in reasons["Pipelines"] and "% larger" in reasons["Pipelines"]


def test_four_mebi_tokens_are_a_step_unless_told() -> None:
    ask = Ask(Workload("zoo:llama2-7b"), "dgx-h100")
    options = resolve_workload(ask).options
    assert (options.batch, options.sequence, options.precision) == (1024, 4096, "bf16-mixed-fp32-grads")


def test_a_model_that_fits_in_no_way_says_by_how_much() -> None:
    """70 B on eight GPUs of 16 GiB."""
    workload = Workload("zoo:llama2-70b", options=WorkloadOptions(batch=8))
    found = advise(Ask(workload, "dgx-1-v100-16g"))
    assert answer_of(found).fits is False
    with pytest.raises(Infeasible, match=r"the leanest plan needs .* GiB of 16 GiB a device") as caught:
        found.refuse_misfits()
    assert caught.value.missing and caught.value.missing > 0


def test_a_model_without_known_sizes_is_bad_input() -> None:
    pytest.importorskip("torch")
    with pytest.raises(BadInput, match="is not known by its sizes"):
        advise(Ask(Workload("zoo:mlp", options=WorkloadOptions(batch=8)), "dgx-h100"))


def trial(seconds: float, peak: float, nodes: int = 2, zero: int = 1) -> PlanTrial:
    """Of ten GiB devices, eight in a node."""
    candidate = Candidate(Degrees(zero=zero), nodes, 8 * nodes, 64)
    metrics = {"step_time": seconds, "peak_memory_per_device": peak * GIB, "mfu": 0.5}
    return PlanTrial(candidate, {}, "", "ok", None, {name: {"value": v} for name, v in metrics.items()})


def test_the_margin_refuses_the_fastest_and_names_it() -> None:
    tight, roomy, lean = trial(1.0, 9.5), trial(1.1, 8.0), trial(2.0, 2.0)
    choice = choose([lean, tight, roomy], "time", 10 * GIB, 0.1)
    assert choice is not None
    assert (choice.chosen, choice.refused) == (roomy, tight)
    assert [one for one, _ in choice.alternatives] == [tight, lean]
    assert "under the margin" in choice.alternatives[0][1]
    without = choose([lean, tight, roomy], "time", 10 * GIB, 0.0)
    assert without is not None and without.chosen is tight and without.refused is None


def test_where_only_the_margin_is_broken_the_best_is_still_answered() -> None:
    choice = choose([trial(1.0, 9.5)], "time", 10 * GIB, 0.1)
    assert choice is not None and not choice.keeps_margin
    assert choose([], "time", 10 * GIB, 0.1) is None


def test_fewer_nodes_are_the_answer_for_the_price_alone() -> None:
    """Two nodes take 1 s, one takes 1.6 s: 16 device-seconds against 12.8."""
    both, half, dear = trial(1.0, 5.0), trial(1.6, 7.0, nodes=1), trial(2.1, 4.0, nodes=1)
    fastest = choose([both, half, dear], "time", 10 * GIB, 0.1)
    cheapest = choose([both, half, dear], "cost", 10 * GIB, 0.1)
    assert fastest is not None and fastest.chosen is both
    assert [one for one, _ in fastest.alternatives] == [half]
    assert "8 devices instead of 16: a step is 20 % cheaper" in fastest.alternatives[0][1]
    assert cheapest is not None and cheapest.chosen is half
    assert _next_best("cost", both, half).endswith(", on 2 nodes, 25 % more expensive, at 5 GiB.")
    assert _next_best("time", half, both).endswith(", on 1 node, 60 % slower, at 7 GiB.")


def test_a_much_slower_plan_is_no_alternative() -> None:
    choice = choose([trial(1.0, 8.0), trial(3.0, 1.0)], "time", 10 * GIB, 0.1)
    assert choice is not None and choice.alternatives == ()


@pytest.mark.parametrize(
    ("layout", "policy", "knobs"),
    [
        (Degrees(zero=3, micro_batch=2), "fsdp", {"micro_batches": 4, "recompute": "none"}),
        (
            Degrees(zero=2, micro_batch=4, recompute="blocks", host_optimizer=True),
            "zero",
            {"stage": 2, "micro_batches": 2, "recompute": True, "host_optimizer": True},
        ),
        (Degrees(tensor=2, sequence=True), "megatron", {"tensor": 2, "sequence_parallel": True}),
    ],
)
def test_a_plan_is_the_policy_whose_system_does_it(
    layout: Degrees, policy: str, knobs: dict[str, Any]
) -> None:
    candidate = Candidate(layout, 1, 8, 64)
    assert candidate.policy == policy
    assert knobs.items() <= candidate.knobs.items()


def test_the_document_is_json_and_its_torch_text_is_python() -> None:
    document = json.loads(json.dumps(answer().to_json(), allow_nan=False))
    assert [one["dialect"] for one in document["settings"]] == ["torch", "DeepSpeed", "Megatron-LM"]
    ast.parse(document["settings"][0]["text"])
    configuration = json.loads(document["settings"][1]["text"])
    sizes = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    micro_batch, accumulated = (configuration[name] for name in sizes)
    assert configuration["train_batch_size"] == micro_batch * accumulated * 8 == 128


def test_progress_ends_at_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from experiments.advisor.cluster import advice as search

    monkeypatch.setattr(search, "simulate_in_turn", lambda *given: iter(()))
    seen: list[float] = []
    report: Callable[[float, str], None] = lambda fraction, step: seen.append(fraction)  # noqa: E731
    search.advise_on_cluster(seven_billion().ask, report)
    assert seen == sorted(seen) and seen[-1] == 1.0
