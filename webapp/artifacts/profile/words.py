"""Where the time of a profile went, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.core.units import human
from webapp.artifacts.profile.ranks import Process

#: The parts of a device's time, in the order in which they are stacked: (key, words).
PARTS = (
    ("compute", "compute"),
    ("communication", "exposed communication"),
    ("copies", "memory copies"),
    ("idle", "idle"),
)
#: Ranks are told apart from this difference of their waiting on (fraction of the span).
UNEVEN = 0.02
LONGEST = 60


def percent_of(part: float, whole: float) -> str:
    """``61 %``; small parts with one more digit, so that they do not vanish."""
    share = 100 * part / whole if whole else 0.0
    return (
        f"{share:.0f} %"
        if share >= 9.5 or not share
        else f"{share:.1f} %"
        if share >= 0.05
        else "below 0.1 %"
    )


def split_words(row: Mapping[str, Any]) -> str:
    """``61 % compute, 19 % exposed communication, 4.2 % memory copies, 16 % idle``; parts that are not there
    are left out.
    """
    return ", ".join(f"{percent_of(row[key], row['span'])} {words}" for key, words in PARTS if row[key] > 0)


def reasons_of(process: Process, device: Mapping[str, Any]) -> Iterator[str]:
    """What stands behind the split: the largest kernel, hidden communication, why it was idle, launches."""
    told = process.told
    yield from top_of(told.get("kernels") or (), "kernel", "seconds", "all work")
    if device["communication_total"]:
        hidden = percent_of(device["overlapped"], device["communication_total"])
        yield f"Compute hides {hidden} of {human(device['communication_total'], 's')} of communication."
    yield from _why_idle(told["idle"], device)
    launches = told.get("launches") or {}
    if launches:
        short_ones = percent_of(launches["short"], launches["count"])
        yield f"{short_ones} of {launches['count']:,} launches took the host longer than the device."


def top_of(rows: Sequence[Mapping[str, Any]], noun: str, key: str, whole: str) -> Iterator[str]:
    """What takes most, of rows with ``name``, ``count`` and seconds under ``key``; nothing of no rows."""
    total = sum(row[key] for row in rows)
    for row in rows[:1]:
        yield (
            f"The {noun} that takes most is {short(row['name'])}: {human(row[key], 's')} in "
            f"{calls(row['count'])}, {percent_of(row[key], total)} of {whole}."
        )


def calls(count: int) -> str:
    """Return ``1 call`` or ``1,024 calls``."""
    return f"{count:,} call{'' if count == 1 else 's'}"


def top_operator(operators: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Of a trace without a device."""
    total = sum(row["host"] for row in operators)
    for row in operators[:1]:
        yield (
            f"The operator that takes most is {row['name']}: {human(row['host'], 's')} in "
            f"{calls(row['count'])}, {percent_of(row['host'], total)} of the time inside operators."
        )


def _why_idle(streams: Sequence[Mapping[str, Any]], device: Mapping[str, Any]) -> Iterator[str]:
    """Of the stream with the most work: gaps of the others are mostly meant."""
    mine = [row for row in streams if row["device"] == device["device"]]
    busiest = max(mine, key=lambda row: row["busy"], default=None)
    if busiest is None:
        return
    gaps = {cause: busiest[cause] for cause in ("host wait", "kernel wait", "other")}
    whole = sum(gaps.values())
    cause = max(gaps, key=lambda name: gaps[name])
    if whole:
        yield (
            f"On its busiest stream ({busiest['stream']}) {percent_of(gaps[cause], whole)} of "
            f"{human(whole, 's')} between kernels {MEANINGS[cause]}."
        )


MEANINGS = {
    "host wait": "is waiting for the host to launch the next one",
    "kernel wait": "is the price of launching one kernel after another",
    "other": "has another cause, such as waiting for another stream",
}


def straggler_of(processes: Sequence[Process]) -> str:
    """The rank for which the others wait: it spends least in collectives. Empty where they are even."""
    rows = [(process.told["devices"][0], process.rank) for process in processes if process.told["devices"]]
    if len(rows) < 2:
        return ""
    waits = sorted((row["communication_total"], rank) for row, rank in rows)
    (least, straggler), (most, patient) = waits[0], waits[-1]
    longest = max(row["span"] for row, _ in rows)
    if most - least < UNEVEN * longest:
        return f"The {len(rows)} ranks are even: they differ by {human(most - least, 's')} in collectives."
    return (
        f"Rank {straggler} is the straggler: it spends {human(least, 's')} in collectives, rank {patient} "
        f"{human(most, 's')}; who comes last waits least."
    )


def host_words(host: Mapping[str, Any]) -> str:
    inside, between = (percent_of(host[part], host["span"]) for part in ("operators", "between"))
    return f"{inside} inside operators, {between} between them"


def short(name: str) -> str:
    """A kernel's name without return type, template and call arguments."""
    depth, kept = 0, []
    for sign in name.replace("->", "").replace("(anonymous namespace)::", ""):
        depth += (sign in "<(") - (sign in ">)")
        if depth == 0 and sign not in ">)":
            kept.append(sign)
    words = "".join(kept).split()
    plain = words[-1] if words and ("<" in name or name.startswith("void ")) else "".join(kept).strip()
    plain = plain or name
    return plain if len(plain) <= LONGEST else plain[: LONGEST - 1] + "…"
