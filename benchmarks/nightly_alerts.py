"""How often a step of a nightly figure is found and how often none is told as one, next to asv and Otava.

    python benchmarks/nightly_alerts.py                      # ours and asv's own rule
    python benchmarks/nightly_alerts.py --otava PYTHON       # an interpreter that has apache-otava

Series of sixty nights with noise of 1 %: Gaussian, heavy tails (Student's t with 2 degrees of freedom),
spikes (every twentieth night up to 30 % slower), and a slow drift of 2 % in all. Of each 200 without a step,
with one of 2 % and of 5 %, fifteen or three nights before the end. *Found*: a step told within three nights
of the true one; *false*: a series with a step told where none is. "Run again" is the rule of the lab: what
stepped is measured three times more, and told only where that shows it too; what it does not show was no
level, so that the way back from it is no step. "And slower" are the regressions of these, as asv tells them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from asv.step_detect import detect_regressions, detect_steps

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from webapp.nightly.levels import is_worth_telling, segments, shows_step
from webapp.nightly.otava import change_points

NIGHTS, SERIES, NOISE, NEAR = 60, 200, 0.01, 3
#: asv's usual threshold of a regression.
ASV_THRESHOLD = 0.05
KINDS = ("gaussian", "heavy tail", "spikes", "drift")
STEPS = (0.0, 0.02, 0.05)
AFTER = (15, 3)
Floats = np.ndarray
Told = list[list[int]]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--otava", help="an interpreter with apache-otava")
    parser.add_argument("--series", type=int, default=SERIES)
    arguments = parser.parse_args()
    rules: dict[str, Callable[[list[Floats], list[Floats]], Told]] = {"asv": asv_told, "ours": ours_told}
    rules["run again"] = confirmed
    rules["and slower"] = confirmed_slower
    if arguments.otava:
        rules["Otava"] = lambda series, _: otava_told(arguments.otava, series)
    print(f"{'noise':12} {'step':>5} {'after':>5}", *(f"{name:>18}" for name in rules))
    print(" " * 24, *(f"{'found':>9}{'false':>9}" for _ in rules))
    for kind in KINDS:
        for step in STEPS:
            for after in AFTER if step else AFTER[:1]:
                print_row(kind, step, after, arguments.series, rules)
    return 0


def print_row(
    kind: str,
    step: float,
    after: int,
    count: int,
    rules: dict[str, Callable[[list[Floats], list[Floats]], Told]],
) -> None:
    draw = np.random.default_rng([KINDS.index(kind), round(1000 * step), after])
    series, again = map(list, zip(*(drawn(draw, kind, step, after) for _ in range(count)), strict=True))
    shares = []
    for rule in rules.values():
        told = rule(series, again)
        near = [[abs(place - (NIGHTS - after)) <= NEAR and step > 0 for place in places] for places in told]
        found = sum(map(any, near)) / count
        false = sum(not all(one) for one in near) / count
        shares.append(f"{found:9.0%}{false:9.0%}" if step else f"{'-':>9}{false:9.0%}")
    print(f"{kind:12} {step:5.0%} {after:5}", *shares, flush=True)


def drawn(draw: np.random.Generator, kind: str, step: float, after: int) -> tuple[Floats, Floats]:
    """A series of nights, and for each night three values that a repeat on the next day would give."""
    level = np.ones(NIGHTS)
    level[NIGHTS - after :] *= 1 + step
    if kind == "drift":
        level *= 1 + np.linspace(0, 0.02, NIGHTS)
    return level * noise(draw, kind, (NIGHTS,)), level[:, None] * noise(draw, kind, (NIGHTS, 3))


def noise(draw: np.random.Generator, kind: str, shape: tuple[int, ...]) -> Floats:
    if kind == "heavy tail":
        return np.maximum(0.5, 1 + NOISE * draw.standard_t(2, shape))
    found = 1 + NOISE * draw.standard_normal(shape)
    if kind == "spikes":
        found *= 1 + np.where(draw.random(shape) < 0.05, draw.uniform(0.05, 0.3, shape), 0)
    return np.asarray(found)


def ours_told(series: Sequence[Floats], again: Sequence[Floats]) -> Told:
    """The steps worth telling."""
    levels = [segments(tuple(values.tolist())) for values in series]
    return [
        [new.first for old, new in pairwise(pieces) if is_worth_telling(old.level, new.level)]
        for pieces in levels
    ]


def confirmed(series: Sequence[Floats], again: Sequence[Floats]) -> Told:
    """Of the steps those that the repeats show too, as ``webapp.nightly.changes`` asks."""
    return [[at for at, _ in _told_by_repeats(*one)] for one in zip(series, again, strict=True)]


def confirmed_slower(series: Sequence[Floats], again: Sequence[Floats]) -> Told:
    """Of these the regressions, which alone asv's page has."""
    found = [_told_by_repeats(*one) for one in zip(series, again, strict=True)]
    return [[at for at, is_slower in steps if is_slower] for steps in found]


def _told_by_repeats(values: Floats, repeats: Floats) -> list[tuple[int, bool]]:
    """Where, and whether upwards."""
    told: list[tuple[int, bool]] = []
    held: float | None = None  # the level before what was not shown
    for old, new in pairwise(segments(tuple(values.tolist()))):
        before = old.level if held is None else held
        if not is_worth_telling(before, new.level):
            continue
        is_shown = shows_step(before, new.level, repeats[new.first].tolist())
        told += [(new.first, new.level > before)] if is_shown else []
        held = None if is_shown else before
    return told


def asv_told(series: Sequence[Floats], again: Sequence[Floats]) -> Told:
    """asv's own page of regressions: those of five percent, upwards."""
    out = []
    for values in series:
        _, _, found = detect_regressions(detect_steps(values.tolist()), threshold=ASV_THRESHOLD)
        out.append([after for _, after, _, _ in found or ()])
    return out


def otava_told(python: str, series: Sequence[Floats]) -> Told:
    return change_points(python, [values.tolist() for values in series])


if __name__ == "__main__":
    raise SystemExit(main())
