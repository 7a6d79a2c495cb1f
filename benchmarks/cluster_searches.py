"""One decision of the schedulers that search (Pollux, Liquid in batch mode), by one process and several.

    python -m benchmarks.cluster_searches [PROCESSES ...]

Jobs and what is free are drawn; nodes have 4 GPUs, eight are a rack. ``wall`` is by the clock, ``alone``
what it would say if each process had a core to itself: the processor time of the search's own process and
its workers' mean. All answers to a case are to be the same to the byte; else it ends with exit code 1.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

from experiments.cluster.interface import Machine, Machines, Pool
from experiments.cluster.policies.liquid import grouping
from experiments.cluster.policies.liquid.rooms import Rooms, Want
from experiments.cluster.policies.pollux import generations
from experiments.cluster.policies.pollux.genetic import AllocationProblem

#: Jobs, nodes and generations; Pollux' second row is the authors' cluster at its fullest.
POLLUX = ((7, 16, 100), (29, 16, 100), (60, 64, 40), (100, 50, 40), (160, 100, 20))
LIQUID = ((8, 4, 40), (20, 16, 20), (60, 32, 10), (160, 100, 2))
GPUS, RACK = 4, 8

Search = Callable[[int], bytes]


def pollux(jobs: int, nodes: int, times: int) -> Search:
    """Jobs that speed up by a power of their devices."""
    rng = np.random.default_rng(0)
    gpus, most = np.arange(nodes * GPUS + 1), rng.integers(1, 33, jobs).astype(np.int16)
    powers = rng.uniform(0.3, 1, jobs)[:, None, None] * np.array([1.0, 0.9])[:, None]
    speedups = gpus**powers * (gpus <= most[:, None, None])
    values, base = -1 / (speedups + 1e-3), np.zeros((jobs, nodes), np.int16)
    problem = AllocationProblem(np.full(nodes, GPUS, np.int16), most, base, speedups, values, values)

    def search(processes: int) -> bytes:
        rng = np.random.default_rng(1)
        return generations.search(problem, base[None], rng, 100, times, times, processes).states.tobytes()

    return search


def liquid(jobs: int, nodes: int, times: int) -> Search:
    """A window of jobs of 1 to 8 GPUs or parts of them, two fifths of the devices in use."""
    rng = np.random.default_rng(0)
    rooms = Rooms.of(Pool(Machines(Machine(f"n{n}", GPUS, rack=n // RACK) for n in range(nodes))), 0.5, 0.5)
    wants = {job: draw_want(int(rng.choice([1, 1, 1, 2, 2, 4, 8])), rng) for job in range(jobs)}
    for device in np.flatnonzero(rng.random(nodes * GPUS) < 0.4).tolist():
        rooms.take((device,), draw_want(1, rng))

    def search(processes: int) -> bytes:
        how = grouping.Search(50, times, 0.8, 0.1, processes)
        found = grouping.search(list(wants), wants, rooms, how, np.random.default_rng(1))
        return repr(sorted(found.items())).encode()

    return search


def draw_want(gpus: int, rng: np.random.Generator) -> Want:
    return Want(gpus, float(rng.choice([0.3, 0.5, 1.0])), 0.0, 0.0, ())


def processor_seconds() -> tuple[float, float]:
    """Of this process, and of its children that have ended."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime


def time_search(search: Search, processes: int) -> tuple[float, float, bytes]:
    """Seconds by the clock and with cores of its own, and the answer."""
    (own, children), began = processor_seconds(), time.perf_counter()
    answer = search(processes)
    wall, (own_then, children_then) = time.perf_counter() - began, processor_seconds()
    return wall, own_then - own + (children_then - children) / processes, answer


def print_rows(counts: list[int]) -> Iterator[bool]:
    """Print a line for each search and number of processes; whether all of them answered the same."""
    for name, make, sizes in (("pollux", pollux, POLLUX), ("liquid", liquid, LIQUID)):
        for jobs, nodes, times in sizes:
            search = make(jobs, nodes, times)
            answers = set()
            for processes in counts:
                wall, alone, answer = time_search(search, processes)
                answers.add(answer)
                case = f"{name:8}{jobs:5} jobs {nodes * GPUS:5} GPUs {times:5} generations"
                print(f"{case}{processes:4} processes  wall {wall:7.3f} s  alone {alone:7.3f} s", flush=True)
            yield len(answers) == 1


def main() -> int:
    same = all(list(print_rows([int(text) for text in sys.argv[1:]] or [1, 2, 4])))
    print("the same answers to the byte" if same else "ANSWERS DIFFER")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
