"""How long a max-min division of time takes, against the same program solved by HiGHS in the same run.

    python -m benchmarks.cluster_divisions [JOBS]

Jobs of 1, 2 or 4 GPUs with drawn speeds on 36 devices of each of three types (asked: 300 jobs in 0.5 CPU s).
HiGHS ends in a vertex: the same level, and a division that moves completion times (decision 0170).
"""

from __future__ import annotations

import sys
import time

import numpy as np
from scipy.optimize import linprog

from experiments.cluster.interface import Contest
from experiments.cluster.planning.time_programs import max_min

GOAL = 0.5


def drawn(jobs: int) -> Contest:
    """A question of so many jobs."""
    rng = np.random.default_rng(0)
    speeds = np.sort(rng.uniform(1, 50, (jobs, 3)), axis=1)
    return Contest(
        now=0.0,
        jobs=tuple(range(jobs)),
        types=("a", "b", "c"),
        counts=np.array([36, 36, 36]),
        gpus=rng.choice([1, 1, 1, 2, 4], jobs),
        runs=speeds > 0,
        elapsed=np.zeros(jobs),
        prices=np.zeros(3),
        speeds=speeds,
    )


def by_highs(question: Contest) -> float:
    """The level that the least served job reaches: shares of time by job and type, then the level."""
    jobs, types = question.speeds.shape
    weight = question.gpus[:, None] * question.speeds
    equal = question.speeds @ (question.counts / question.counts.sum())
    level = np.zeros((jobs, jobs * types + 1))
    whole, room = np.zeros((jobs, jobs * types + 1)), np.zeros((types, jobs * types + 1))
    for job in range(jobs):
        columns = slice(job * types, (job + 1) * types)
        level[job, columns], level[job, -1] = -weight[job] / equal[job], 1.0
        whole[job, columns] = 1.0
        room[:, columns] = np.eye(types) * question.gpus[job]
    limits = np.concatenate((np.zeros(jobs), np.ones(jobs), question.counts))
    cost = np.zeros(jobs * types + 1)
    cost[-1] = -1.0
    found = linprog(cost, np.vstack((level, whole, room)), limits, method="highs")
    return float(-found.fun)


def main() -> None:
    question = drawn(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
    max_min(question)
    began = time.process_time()
    division = max_min(question)
    ours = time.process_time() - began
    began = time.process_time()
    level = by_highs(question)
    theirs = time.process_time() - began
    equal = question.speeds @ (question.counts / question.counts.sum())
    levels = [
        question.gpus[job] * float(question.speeds[job] @ division[job,]) / equal[job]
        for job in question.jobs
    ]
    print(f"{'solver':24} {'CPU s':>7} {'least level':>12}")
    print(f"{'interior point (ours)':24} {ours:>7.3f} {min(levels):>12.6f}  asked: {GOAL:g} s")
    print(f"{'HiGHS':24} {theirs:>7.3f} {level:>12.6f}")


if __name__ == "__main__":
    main()
