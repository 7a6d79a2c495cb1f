"""Best schedules next to the library's own operators: figures over all tasks, and a row for each.

The library has two operators for a convolution: torch's eager one, which lays its weight out in every call,
and the same with the weight packed beforehand. ``speedup`` is over the first; what a paper claims over a
library is held against the faster of the two (``speedup_over_library``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from experiments.compilation.interface.tuning import TuningTask
from experiments.compilation.live.ratios import Ratio, ratio_of, speedup_metrics
from experiments.compilation.live.timing import Rounds

#: The library's operators, as rounds name them.
LIBRARY = ("torch", "prepacked")


@dataclass(frozen=True)
class Compared:
    """The best schedules against torch.

    Figures over all tasks, a row for each, and what goes to the provenance.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    rows: tuple[dict[str, Any], ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)


def row_of(taken: Rounds) -> dict[str, Any]:
    """Return one task's times, and the speed-ups over each of the library's operators."""
    samples = {name: taken.sample(name) for name in taken.seconds}
    row: dict[str, Any] = {"seconds": samples["ours"].median, "torch_seconds": samples["torch"].median}
    ratio = taken.ratio("torch", "ours")
    row |= {**speedup_metrics(ratio), "inside_the_noise": not ratio.is_seen}
    if "prepacked" in samples:
        packed = taken.ratio("prepacked", "ours")
        row |= {"prepacked_seconds": samples["prepacked"].median, "speedup_over_prepacked": packed.median}
        row["prepacked_inside_the_noise"] = not packed.is_seen
    if "compiled" in samples:
        row["torch_compile_seconds"] = samples["compiled"].median
    return row | {"spread": {name: asdict(sample) for name, sample in samples.items()}}


def library_of(taken: Rounds) -> str:
    """Return which of the library's operators is faster: torch's, or the one with its weight packed."""
    return min(
        (name for name in LIBRARY if name in taken.seconds), key=lambda name: taken.sample(name).median
    )


def figures_over(
    tasks: Sequence[TuningTask], taken: Sequence[Rounds], seed: int
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the figures over all tasks, each as often as it is called, and notes of further rivals.

    ``speedup_over_library`` holds the schedules against the faster of the library's operators, task by task.
    """
    weighted = [(task.weight, rounds) for task, rounds in zip(tasks, taken, strict=True)]
    latency = sum(weight * rounds.sample("ours").median for weight, rounds in weighted)
    flops = sum(task.weight * (task.flops or 0.0) for task in tasks)
    speedup = _over_all(weighted, ["torch"] * len(taken), seed)
    library = _over_all(weighted, list(map(library_of, taken)), seed)
    metrics = {"latency": latency, **speedup_metrics(speedup), "achieved_flops": flops / latency}
    metrics |= speedup_metrics(library, "speedup_over_library")
    if not all("compiled" in rounds.seconds for rounds in taken):
        return metrics, {}
    compiled = _over_all(weighted, ["compiled"] * len(taken), seed)
    return metrics, {"speedup_over_torch_compile": asdict(compiled)}


def _over_all(weighted: Sequence[tuple[float, Rounds]], rivals: Sequence[str], seed: int) -> Ratio:
    """Return the rivals' seconds of all tasks over ours, round by round."""

    def total(names: Sequence[str], number: int) -> float:
        pairs = zip(weighted, names, strict=True)
        return sum(weight * taken.seconds[name][number] for (weight, taken), name in pairs)

    ours = ["ours"] * len(weighted)
    rounds = min(len(taken.seconds["ours"]) for _, taken in weighted)
    return ratio_of([total(rivals, number) / total(ours, number) for number in range(rounds)], seed)
