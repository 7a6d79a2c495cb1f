"""The answer for one device in words and figures: the ladder's row that was chosen, and others that fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from experiments.advisor.advice import Advice
from experiments.advisor.answer import LETTERS, Answer, NamedPlan, Point
from experiments.advisor.rows import Row
from experiments.advisor.settings import Recipe, Settings, settings_of
from experiments.advisor.words import describe_figures, sentences
from experiments.core.spec import load_workload
from experiments.core.units import human
from experiments.parallel.planning.transformers.plan import Degrees

#: Alternatives that are named, and the share by which figures differ at least that name one.
ALTERNATIVES, SAME = 3, 0.02
#: What each change does and what it is for, by its name on the ladder.
CHANGES = {
    "fused loss": "Head and loss are taken by chunks of tokens: no logits of all of them at once",
    "checkpointing": "Of each layer its input is kept; the layer is computed again in the backward pass",
    "8-bit state": "The optimizer's state is kept in 8 bits",
    "LoRA": "Adapters are trained, the weights stay as they are",
    "NF4": "The frozen weights are stored in 4 bits",
    "offload": "State and activations move to the host, and layers are recomputed, as far as is needed",
}


def answer_on_device(advice: Advice) -> Answer:
    """Return the document; of a model that fits in no way the reason alone."""
    row, ask = advice.chosen, advice.ask
    capacity = float(ask.capacity)
    if row is None:
        first, *rest = sentences(advice)
        return Answer(first, "", tuple(rest), facts(advice), ask.device.name, capacity, capacity)
    finding = "Nothing needs to change: it fits as asked" if row is advice.asked else _finding(row)
    return Answer(
        finding,
        f"{describe_figures(row)} of {human(capacity, 'bytes')}",
        tuple(_explanation(advice, row)),
        facts(advice),
        ask.device.name,
        capacity,
        capacity,
        reasons=tuple(_reasons(row)),
        plans=tuple(_name_plans(advice, row)),
        points=tuple(_points(advice, row)),
        rejected=tuple(_list_rejected(advice)),
        settings=_settings(row),
    )


def _finding(row: Row) -> str:
    text = {"offload": "offload with checkpointing", "checkpointing": "checkpointing"}.get(row.by, "")
    names = [*row.changed, *([text] if text and row.acts else [])]
    joined = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)
    return f"{joined[:1].upper()}{joined[1:]}"


def facts(advice: Advice) -> dict[str, Any]:
    """What was searched, and the question with all that was left open resolved."""
    options = load_workload(dict(advice.asked.spec["workload"])).options
    return {
        "plans": len(advice.rows) + len(advice.left_out),
        "evaluated": 0,
        "simulated": len(advice.rows),
        "devices": 1,
        "nodes": 1,
        "hardware": advice.ask.cluster.name,
        "goal": advice.ask.goal,
        "margin": 0.0,
        "batch": options.batch,
        "sequence": options.sequence,
        "precision": options.precision,
        "optimizer": options.optimizer,
    }


def _explanation(advice: Advice, row: Row) -> Iterator[str]:
    """What the sentences of the answer say next to the reasons."""
    told = {reason["why"] for reason in _reasons(row)}
    said = [sentence for sentence in sentences(advice)[1:] if sentence not in told]
    yield from (sentence for sentence in said if not sentence.startswith(("Left out", "Smallest", "Faster")))


def _reasons(row: Row) -> Iterator[dict[str, str]]:
    """Each change with the peak and the time behind it; what the policy says of its plan is the last's."""
    for name in (*row.changed, *([row.by] if row.by and row.acts else [])):
        said = row.note if name == row.by and row.note else ""
        yield {"what": CHANGES.get(name, name), "why": f"{said[:1].upper()}{said[1:]}." if said else ""}


def _fitting(advice: Advice, row: Row) -> list[Row]:
    """Others of the Pareto front of memory and time, those that give up least first, then the fastest."""
    fits = [one for one in advice.rows if one.fits and one.peak and one.seconds]
    front = [one for one in fits if not any(_is_better(other, one) for other in fits)]
    found: list[Row] = []
    for one in sorted(front, key=lambda one: (len(one.gives_up), one.seconds or 0.0)):
        if not any(_is_same(one, other) for other in (row, *found)):
            found.append(one)
    return found


def _is_better(other: Row, one: Row) -> bool:
    """In memory or time, and in neither worse nor giving up more."""
    pairs = ((other.peak, one.peak), (other.seconds, one.seconds), (len(other.gives_up), len(one.gives_up)))
    return all((a or 0) <= (b or 0) for a, b in pairs) and any((a or 0) < (b or 0) for a, b in pairs[:2])


def _is_same(one: Row, other: Row) -> bool:
    """Figures that differ by little name no other plan."""
    pairs = ((one.peak or 0.0, other.peak or 0.0), (one.seconds or 0.0, other.seconds or 0.0))
    return all(abs(a - b) <= SAME * b for a, b in pairs)


def _name_plans(advice: Advice, row: Row) -> Iterator[NamedPlan]:
    rows = [row, *_fitting(advice, row)[:ALTERNATIVES]]
    for letter, one in zip(LETTERS, rows, strict=False):
        name, given_up = one.title, "; ".join(one.gives_up)
        why = f"trains {one.trains}{f', but {given_up}' if given_up else ', as asked'}"
        price = (one.seconds or 0.0) / (row.seconds or 1.0)
        yield NamedPlan(
            letter,
            f"{name[:1].upper()}{name[1:]}",
            str(one.spec["policy"]),
            one.peak or 0.0,
            one.seconds or 0.0,
            None,
            price,
            why,
            one.spec,
            one.spec_id,
        )


def _points(advice: Advice, row: Row) -> Iterator[Point]:
    letters = dict(zip((row.spec_id, *(one.spec_id for one in _fitting(advice, row))), LETTERS, strict=False))
    for one in advice.rows:
        if one.peak is not None and one.seconds is not None:
            letter = letters.get(one.spec_id, "") if one.fits else ""
            yield Point(one.title, one.peak, one.seconds, one.fits, letter)


def _list_rejected(advice: Advice) -> Iterator[dict[str, Any]]:
    for one in advice.rows:
        excess = one.excess(advice.ask.capacity)
        if not one.fits:
            reason = f"{human(excess, 'bytes')} too much" if excess is not None else one.reason or ""
            yield {"idea": f"{one.title[:1].upper()}{one.title[1:]}", "plans": 1, "reason": reason}
    for left in advice.left_out:
        yield {"idea": f"{left.name[:1].upper()}{left.name[1:]}", "plans": 1, "reason": left.reason}


def _settings(row: Row) -> tuple[Settings, ...]:
    options = load_workload(dict(row.spec["workload"])).options
    layout = Degrees(
        micro_batch=options.batch or 1,
        recompute="blocks" if row.acts and row.by else "none",
        host_optimizer=row.acts and row.by == "offload",
    )
    return settings_of(Recipe(layout, options, 1, 1, 1, 1, blocks=0))
