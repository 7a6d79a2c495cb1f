"""How fast the tuners find good schedules, each next to a random search of the same space in the same run.

Two tables. The first replays a recorded log of TVM's (its times are looked up, so seeds are cheap): trials to
shares of the best recorded throughput, medians over seeds, and what a proposal costs in thinking. The second
tunes a model's heaviest operators on this host for real: every search gets the same trials; at the end the
best schedules of all of them and torch's own operators are timed in turns. Ends with exit code 1 where a
tuner needs more trials than the random search to the best of the log (a replay is the same on every host, so
noise has no part in it).

    python benchmarks/tuner_search.py [--log LOG] [--seeds 5] [--model zoo:resnet18 --tasks 2 --trials 64]
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from experiments.compilation.experiment.replay import replay_of
from experiments.compilation.interface.tuning import TuningPolicy, TuningTask
from experiments.compilation.planning.tuning.random_search import RandomTuner
from experiments.compilation.planning.tuning.session import SHARES, History, Measure, trials_to, tune
from experiments.compilation.policies.ansor import Ansor
from experiments.compilation.policies.autotvm import AutoTvm
from experiments.core.options import WorkloadOptions
from experiments.core.progress import Bar, Progress, silent
from experiments.core.spec import load_workload
from experiments.readers.base import open_file
from experiments.sources import load

ROOT = Path(__file__).resolve().parent.parent
LOG = ROOT.parent / "shared/data/compilation/autotvm_ansor_logs/matmul_65536_1024_1024.log"
MICROSECOND = 1e-6


@dataclass(frozen=True)
class Search:
    """A tuner; with ``at_random`` a random search of the same space."""

    policy: TuningPolicy
    at_random: bool = False

    @property
    def name(self) -> str:
        return f"random, {self.policy.name}'s space" if self.at_random else self.policy.name

    def run(self, tasks: Sequence[TuningTask], measure: Measure, seed: int, progress: Progress) -> History:
        """From nothing to all trials of the policy."""
        policy = self.policy
        tuner = (
            RandomTuner(tasks, seed, policy.round_of(64, tasks))
            if self.at_random
            else policy.tuner(tasks, seed)
        )
        return tune(tuner, tasks, measure, policy.trials, math.inf, progress)


def replayed(path: Path, seeds: int) -> bool:
    """The table of a log; whether each tuner reaches the best of it in no more trials than a
    random search.
    """
    log: Any = open_file(path, "auto", WorkloadOptions()).reading.value
    replay = replay_of(log)
    print(
        f"{path.name}: {len(log)} records, {log.valid} valid, best {replay.best:.6g} s; medians of {seeds} "
        "seeds"
    )
    print(
        f"{'search':<26}"
        + "".join(f"{'to ' + name + (' %' if name != 'best' else ''):>9}" for name in SHARES)
        + f"{'us/proposal':>13}"
    )
    to_best = {}
    searches = (
        Search(AutoTvm(trials=len(log))),
        Search(Ansor(trials=len(log))),
        Search(AutoTvm(trials=len(log)), True),
    )
    for search in searches:
        runs = [search.run(replay.tasks, replay.measure, seed, silent) for seed in range(seeds)]
        counts = {
            name: _median(trials_to(run.curve(), replay.best, share) for run in runs)
            for name, share in SHARES.items()
        }
        thinking = np.mean([run.thinking / len(run.trials) for run in runs]) / MICROSECOND
        name = "random" if search.at_random else search.name
        print(f"{name:<26}" + "".join(f"{counts[share]:>9.0f}" for share in SHARES) + f"{thinking:>13.0f}")
        to_best[name] = counts["best"]
    print()
    return max(to_best.values()) <= to_best["random"]


def _median(counts: Iterable[int | None]) -> float:
    return float(np.median([math.inf if count is None else count for count in counts]))


def tuned(model: str, operators: int, trials: int, threads: int, seed: int) -> None:
    """The table of a model: searches one after another, their best schedules and torch's
    operators in turns.
    """
    from experiments.compilation.live.timing import in_turns
    from experiments.compilation.live.tuning import Bench
    from experiments.compilation.live.tuning.bench import TURNS

    source: Any = load(load_workload({"source": model, "options": {"batch": 1}})).value
    source = replace(source, options=replace(source.options, training=False))
    budget = {"tasks": operators, "trials": trials, "threads": threads}
    policies = (AutoTvm(**budget), Ansor(**budget))
    searches = [Search(policy, at_random) for policy in policies for at_random in (False, True)]
    with ExitStack() as stack:
        benches = [
            stack.enter_context(Bench(source, search.policy, seed, silent, None)) for search in searches
        ]
        histories = [
            search.run(bench.tasks, bench.measure, seed, Bar() if sys.stderr.isatty() else silent)
            for search, bench in zip(searches, benches, strict=True)
        ]
        totals = dict.fromkeys([*(search.name for search in searches), "torch"], 0.0)
        for place, task in enumerate(benches[0].tasks):
            calls = {}
            for search, bench, history in zip(searches, benches, histories, strict=True):
                best = history.best(place)
                if best is None:
                    totals[search.name] = math.inf
                    continue
                found = bench.calls(place, best.proposal)
                calls |= {search.name: found["ours"], "torch": found["torch"]}
            taken = in_turns(calls, seed, TURNS)
            for name in calls:
                totals[name] += task.weight * taken.sample(name).median
    _print_tuned(model, benches[0].tasks, searches, histories, totals)


def _print_tuned(
    model: str,
    tasks: Sequence[TuningTask],
    searches: Sequence[Search],
    histories: Sequence[History],
    totals: Mapping[str, float],
) -> None:
    calls = ", ".join(f"{task.name} ({task.weight:g} calls)" for task in tasks)
    print(
        f"{model}: {calls}; {len(histories[0].trials)} trials each; best schedules in turns with torch's "
        f"operators; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    print(
        f"{'search':<26}{'ms':>9}{'over torch':>12}{'trials to random':>18}{'failed':>8}{'s/trial':>9}"
        f"{'thinking':>10}"
    )
    for place, (search, history) in enumerate(zip(searches, histories, strict=True)):
        rival = histories[place if search.at_random else place + 1].curve()[-1]
        reached = trials_to(history.curve(), float(rival), 1.0)
        print(
            f"{search.name:<26}{totals[search.name] * 1e3:>9.3f}"
            f"{totals['torch'] / totals[search.name]:>12.2f}"
            f"{reached or '-':>18}{sum(history.failures.values()):>8}"
            f"{history.seconds / len(history.trials):>9.2f}{history.thinking / history.seconds:>10.1%}"
        )
    print(f"{'torch':<26}{totals['torch'] * 1e3:>9.3f}{1.0:>12.2f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--log", type=Path, default=LOG)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--model", default="zoo:resnet18", help="'' for the replay alone")
    parser.add_argument("--tasks", type=int, default=2)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1, help="0 for all; one is timed by processor time")
    chosen = parser.parse_args()
    kept = True
    if chosen.log.is_file():
        kept = replayed(chosen.log, chosen.seeds)
    else:
        print(f"no log at {chosen.log}\n")
    if chosen.model:
        tuned(chosen.model, chosen.tasks, chosen.trials, chosen.threads, seed=0)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
