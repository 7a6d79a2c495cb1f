"""How often the timing harness sees a fifth on a busy host, and how often it sees something where nothing is.

    python benchmarks/busy_host_timing.py                # one busy process, 20 trials of each pair
    python benchmarks/busy_host_timing.py --busy 4       # more of them than there are cores

A pair is a loop and the same loop with a fifth more rounds, or with as many; each trial times a pair as a
compiled model and eager are timed. Asked for: the fifth seen in 15 of 20 trials, an equal pair in at most
one. Next to it stands what overlapping quartiles of the same times would have said.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from experiments.compilation.live.timing import Comparison, compare

#: Of so many trials the fifth must be seen in so many, and equal loops may differ in so many.
TRIALS, LEAST_SEEN, MOST_EQUAL = 20, 15, 1
#: A loop's rounds, and those of the slower one.
ROUNDS, MORE_ROUNDS = 10, 12


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--busy", type=int, default=1, help="busy processes next to this one")
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument(
        "--seconds", type=float, help="seconds of a series of pairs, if not the harness's own"
    )
    arguments = parser.parse_args()
    print(f"{arguments.busy} busy processes, {arguments.trials} trials of each pair\n")
    print(
        f"{'loop':<30}{'threads':>8}  {'clock':<16}{'fifth seen':>11}{'equal differ':>13}{'by quartiles':>16}"
    )
    with busy(arguments.busy):
        met = [
            row(name, make, threads, arguments.trials, arguments.seconds)
            for name, make in LOOPS.items()
            for threads in sorted({1, torch.get_num_threads()})
        ]
    return 0 if all(met) else 1


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that compute all the time."""
    others = [multiprocessing.get_context("spawn").Process(target=compute, daemon=True) for _ in range(count)]
    for other in others:
        other.start()
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.join()


def compute() -> None:
    while True:
        sum(range(1_000_000))


def of_python(rounds: int) -> Callable[[], Any]:
    return lambda: [sum(range(2_000)) for _ in range(rounds)]


def of_products(rounds: int) -> Callable[[], Any]:
    values = torch.randn(192, 192)

    def call() -> None:
        for _ in range(rounds):
            values @ values

    return call


LOOPS: dict[str, Callable[[int], Callable[[], Any]]] = {
    "10 or 12 sums in Python": of_python,
    "10 or 12 products of 192 x 192": of_products,
}


def row(
    name: str, make: Callable[[int], Callable[[], Any]], threads: int, trials: int, seconds: float | None
) -> bool:
    """Print what ``trials`` of both pairs gave, and return whether that is what was asked for."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        slower, equal = (
            [compare(make(ROUNDS), make(rounds), "cpu", seed, seconds) for seed in range(trials)]
            for rounds in (MORE_ROUNDS, ROUNDS)
        )
    finally:
        torch.set_num_threads(before)
    seen, differ = (sum(not one.inside_the_noise for one in found) for found in (slower, equal))
    quartiles = [sum(not overlap(one) for one in found) for found in (slower, equal)]
    clocks = ", ".join(sorted({one.clock for one in (*slower, *equal)}))
    print(
        f"{name:<30}{threads:>8}  {clocks:<16}{seen:>8}/{trials}{differ:>10}/{trials}"
        f"{quartiles[0]:>8}, {quartiles[1]}/{trials}",
        flush=True,
    )
    return seen * TRIALS >= LEAST_SEEN * trials and differ * TRIALS <= MOST_EQUAL * trials


def overlap(found: Comparison) -> bool:
    """Whether the quartiles overlap."""
    return found.ours.lower <= found.eager.upper and found.eager.lower <= found.ours.upper


if __name__ == "__main__":
    sys.exit(main())
