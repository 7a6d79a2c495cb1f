"""The answer in sentences: what fits, what it costs, what it gives up, and what was left out and why."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.advisor.advice import Advice
from experiments.advisor.ask import COST
from experiments.advisor.rows import Row
from experiments.core.units import human


def sentences(advice: Advice) -> list[str]:
    """Return the answer first, then what stands behind it."""
    return [*_answer(advice), *_others(advice), *_cautions(advice), *_left_out(advice)]


def _answer(advice: Advice) -> Iterator[str]:
    row, ask = advice.chosen, advice.ask
    device, capacity = ask.device.name, human(ask.capacity, "bytes")
    if row is None:
        yield f"Nothing that was tried fits {device} with {capacity}."
    elif row is advice.asked:
        yield f"It fits {device} as asked: {describe_figures(row)} of {capacity}."
    else:
        yield f"{_sentence_case(row.title)}: {describe_figures(row)} of {capacity} on {device}."
        if row.acts and row.note:
            yield f"{_sentence_case(row.note)}."
        given_up = "; ".join(row.gives_up)
        yield f"It gives up this: {given_up}." if given_up else f"It trains {row.trains}, as asked."
    if not advice.asked.fits:
        yield f"As asked it does not fit: {_describe_need(advice.asked, ask.capacity)}."
    if row is not None and ask.goal == COST:
        yield "On one device the cheapest step is the fastest: it is paid by the hour."
    if row is not None and row is not advice.asked:
        yield from _price(advice, row)


def describe_figures(row: Row) -> str:
    """Peak, step time and rate of a row that has them."""
    rate = next((one for one in ("tokens_per_second", "samples_per_second") if one in row.metrics), None)
    words = [f"{_format_metric(row, 'step_time')} a step"]
    if rate is not None:
        words.append(f"{row.value(rate):,.0f} {rate.split('_')[0]}/s")
    return f"{', '.join(words)}, a peak of {_format_metric(row, 'peak_memory')}"


def _format_metric(row: Row, metric: str) -> str:
    found = row.metrics[metric]
    return human(found["value"], found["unit"])


def _describe_need(row: Row, capacity: int) -> str:
    excess = row.excess(capacity)
    if row.peak is None or excess is None:
        return row.reason or "no plan is found"
    return f"{human(row.peak, 'bytes')}, {human(excess, 'bytes')} too much"


def _price(advice: Advice, row: Row) -> Iterator[str]:
    """Compare the step's time with that of what was asked on a device where it would fit."""
    asked, seconds = advice.asked.seconds, row.seconds
    if asked and seconds:
        ideal = f"As asked, with memory for all of it, a step would take {human(asked, 's')}"
        yield f"{ideal}: this takes {seconds / asked:.2f} times that."


def _others(advice: Advice) -> Iterator[str]:
    """What trains as asked where the answer does not, and what is faster or smaller and gives up more."""
    chosen = advice.chosen
    if chosen is None:
        return
    fitting = [row for row in advice.rows if row.fits and row is not chosen]
    if chosen.gives_up:
        same = min((r for r in fitting if not r.gives_up), key=lambda row: row.seconds or 0.0, default=None)
        yield "Nothing that trains as asked fits." if same is None else f"Trained as asked: {_runner(same)}."
    faster = [
        r for r in fitting if _less(r.seconds, chosen.seconds) and len(r.gives_up) > len(chosen.gives_up)
    ]
    if faster:
        best = min(faster, key=lambda row: row.seconds or 0.0)
        price = f", but {'; '.join(best.gives_up)}" if best.gives_up else ""
        yield f"Faster{price}: {_runner(best)}."
    leaner = [r for r in fitting if _less(r.peak, chosen.peak)]
    if leaner:
        yield f"Smallest: {_runner(min(leaner, key=lambda row: row.peak or 0.0))}."


def _runner(row: Row) -> str:
    by = f" ({row.note})" if row.acts and row.note else ""
    return f"{row.title}, {describe_figures(row)}{by}"


def _less(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and one < other


def _cautions(advice: Advice) -> Iterator[str]:
    row, ask = advice.chosen, advice.ask
    if row is not None and row.peak is not None:
        kernels = ask.device.kernels
        usual = kernels.reserved_bytes + kernels.fragmentation * row.peak
        free = ask.capacity - row.peak
        if free < usual:
            yield (
                f"It is tight: {human(free, 'bytes')} are free, and a context, libraries and fragmentation "
                f"usually take {human(usual, 'bytes')} ({kernels.source})."
            )
    if advice.asked.at_full_peak:
        yield "Times are at the device's full peak: lower bounds."


def _left_out(advice: Advice) -> Iterator[str]:
    for one in advice.left_out:
        yield f"Left out: {one.name}, {one.reason}."
    for row in advice.rows:
        if row.peak is None:
            yield f"Without figures: {row.title}, {row.reason or 'no plan is found'}."


def _sentence_case(text: str) -> str:
    return text[:1].upper() + text[1:]
