"""The answer for several devices in words and figures."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from experiments.advisor.answer import LETTERS, Answer, NamedPlan, Point
from experiments.advisor.ask import COST
from experiments.advisor.cluster.advice import ClusterAdvice
from experiments.advisor.cluster.choice import Choice
from experiments.advisor.cluster.phrases import finding, in_a_row
from experiments.advisor.cluster.trials import PlanTrial
from experiments.advisor.settings import Recipe, settings_of
from experiments.core.errors import Infeasible
from experiments.core.units import human, significant


def answer_on_cluster(advice: ClusterAdvice) -> Answer:
    """Return the document; of a model that fits in no way the reason alone."""
    ask, choice = advice.ask, advice.choice
    device, capacity = ask.device.name, float(ask.capacity)
    if choice is None:
        return Answer(_misfit(advice), "", (), facts(advice), device, capacity, advice.allowed)
    return Answer(
        finding(choice.chosen.candidate),
        figures(choice.chosen, ask.capacity),
        tuple(_explanation(advice, choice)),
        facts(advice),
        device,
        capacity,
        advice.allowed,
        reasons=tuple(asdict(reason) for reason in advice.reasons),
        plans=tuple(_name_plans(choice)),
        points=tuple(_points(advice, choice)),
        rejected=tuple(asdict(one) for one in advice.rejected),
        settings=settings_of(recipe(advice, choice.chosen)),
    )


def _misfit(advice: ClusterAdvice) -> str:
    try:
        advice.refuse_misfits()
    except Infeasible as error:
        return f"{error}"
    return ""


def figures(trial: PlanTrial, capacity: float) -> str:
    """``6.96 s a step, 43.9 % MFU, 71.3 GiB of 80 GiB``."""
    memory = f"{human(trial.peak, 'bytes')} of {human(capacity, 'bytes')}"
    return f"{human(trial.seconds, 's')} a step, {human(trial.value('mfu'), 'fraction')} MFU, {memory}"


def facts(advice: ClusterAdvice) -> dict[str, Any]:
    """What was searched, and the question with all that was left open resolved."""
    options, cluster = advice.workload.options, advice.ask.cluster
    refused = sum(sum(space.refused.values()) for space in advice.spaces)
    return {
        "plans": advice.looked_at + refused,
        "evaluated": advice.looked_at,
        "simulated": len(advice.trials),
        "devices": cluster.device_count,
        "nodes": cluster.node_count,
        "hardware": cluster.name,
        "goal": advice.ask.goal,
        "margin": advice.ask.margin,
        "batch": options.batch,
        "sequence": options.sequence,
        "precision": options.precision,
        "optimizer": options.optimizer,
    }


def _explanation(advice: ClusterAdvice, choice: Choice) -> list[str]:
    ask, chosen = advice.ask, choice.chosen
    found = []
    if not choice.keeps_margin:
        margin = human(ask.margin, "fraction")
        found.append(f"No plan leaves {margin} of the memory free; this is the best that fits at all.")
    elif choice.refused is not None:
        found.append(_refusal(ask.goal, ask.margin, ask.capacity, choice.refused, chosen))
    if choice.runner_up is not None:
        found.append(_next_best(ask.goal, choice.runner_up, chosen))
    if ask.goal == COST:
        hours = human(chosen.price, "s")
        found.append(
            f"The price is counted in device-seconds, {hours} a step on {chosen.candidate.devices:,}."
        )
    return found


def _refusal(goal: str, margin: float, capacity: float, better: PlanTrial, chosen: PlanTrial) -> str:
    rates = (better.price, chosen.price) if goal == COST else (better.seconds, chosen.seconds)
    gain = f"{significant(100 * (1 - rates[0] / rates[1]))} % {'cheaper' if goal == COST else 'faster'}"
    free = human(capacity - better.peak, "bytes")
    return (
        f"{in_a_row(better.candidate)} is {gain} and leaves {free}, less than the "
        f"{human(margin, 'fraction')} kept free for fragmentation and uneven loads. "
        "With a smaller margin it is the answer."
    )


def _next_best(goal: str, other: PlanTrial, chosen: PlanTrial) -> str:
    """The runner-up, and how far it is from the chosen plan in time or in price."""
    rates = (other.price, chosen.price) if goal == COST else (other.seconds, chosen.seconds)
    worse, better = ("more expensive", "cheaper") if goal == COST else ("slower", "faster")
    share = significant(100 * abs(rates[0] / rates[1] - 1), 2)
    how = f"{share} % {worse if rates[0] >= rates[1] else better}"
    name = in_a_row(other.candidate) + _on_fewer(other, chosen)
    return f"Next is {name}, {how}, at {human(other.peak, 'bytes')}."


def _name_plans(choice: Choice) -> list[NamedPlan]:
    whys = ["best under the goal", *(why for _, why in choice.alternatives)]
    if choice.keeps_margin:
        whys[0] = f"{whys[0]}, with the margin free"
    rows = zip(LETTERS, choice.named, whys, strict=False)
    return [
        NamedPlan(
            letter,
            in_a_row(trial.candidate) + _on_fewer(trial, choice.chosen),
            trial.candidate.policy,
            trial.peak,
            trial.seconds,
            trial.value("mfu"),
            trial.price / choice.chosen.price,
            why,
            trial.spec,
            trial.spec_id,
        )
        for letter, trial, why in rows
    ]


def _on_fewer(trial: PlanTrial, chosen: PlanTrial) -> str:
    nodes = trial.candidate.nodes
    return "" if nodes == chosen.candidate.nodes else f", on {nodes:,} node{'s' if nodes > 1 else ''}"


def _points(advice: ClusterAdvice, choice: Choice) -> list[Point]:
    letters = {id(trial): letter for letter, trial in zip(LETTERS, choice.named, strict=False)}
    found = [
        Point(in_a_row(trial.candidate), trial.peak, trial.seconds, True, letters.get(id(trial), ""))
        for trial in advice.trials
        if trial.fits
    ]
    return [*found, *_beyond(advice)]


def _beyond(advice: ClusterAdvice) -> list[Point]:
    """By closed form: what does not fit is not simulated."""
    found = advice.fastest_misfits()
    return [Point(in_a_row(one), one.peak_memory or 0.0, one.step_time or 0.0, False) for one in found]


def recipe(advice: ClusterAdvice, trial: PlanTrial) -> Recipe:
    """What the settings of a trial are written from."""
    one, cluster = trial.candidate, advice.ask.cluster
    sizes = advice.spaces[0].estimate.model.transformer
    assert sizes is not None
    return Recipe(
        layout=one.layout,
        options=advice.workload.options,
        nodes=one.nodes,
        per_node=cluster.device_count // cluster.node_count,
        replicas=one.replicas,
        micro_batches=one.micro_batches,
        blocks=sizes.layers,
        experts=sizes.mixture.experts if sizes.mixture else 0,
        saves_operators=one.saves_operators,
    )
