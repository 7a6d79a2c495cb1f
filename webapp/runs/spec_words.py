"""An experiment that is being put together, in a sentence: policies, workload, hardware and mode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.sources import SPEEDS_OF_GENERATED
from webapp.presentation import pretty
from webapp.runs.grid import Trial
from webapp.runs.question import SPOKEN, step_in_words, step_options

#: So many names are said; of more their number.
FEW = 2
#: Options that a trace's own words tell.
TOLD = ("model", "limit")
#: The table of speeds that a drawn trace has anyway.
USUAL_SPEEDS = ("extra", SPEEDS_OF_GENERATED)


@dataclass(frozen=True)
class Sentence:
    """Parts of the heading; the first three are set in bold."""

    policies: str
    workloads: str
    hardware: str
    step: str
    rest: str

    @property
    def plain(self) -> str:
        step = f" ({self.step})" if self.step else ""
        return f"{self.policies} on {self.workloads}{step}, on {self.hardware}, {self.rest}"


def sentence_of(trials: Sequence[Trial], hardware: Iterable[str]) -> Sentence:
    """``43 memory policies on qwen2-1.5b, a training step of ..., on one rtx-4090-24g, simulated``."""
    policies = list(dict.fromkeys(trial.spec["policy"] for trial in trials))
    families = list(dict.fromkeys(trial.spec["family"] for trial in trials))
    said = _name(policies, f"{' and '.join(families)} policies")
    workloads = _name(list(dict.fromkeys(trial.artifact.name for trial in trials)), "workloads")
    modes = list(dict.fromkeys(trial.spec["mode"] for trial in trials))
    seeds = len({trial.spec["seed"] for trial in trials})
    rest = [" and ".join(modes), *([f"{seeds} seeds"] if seeds > 1 else [])]
    where = _name(list(dict.fromkeys(hardware)), "kinds of hardware")
    return Sentence(said, workloads, where, _step(trials), ", ".join(rest))


def _name(names: Sequence[str], noun: str) -> str:
    return " and ".join(names) if len(names) <= FEW else f"{len(names)} {noun}"


def _step(trials: Sequence[Trial]) -> str:
    """The step that the runs have; of options that differ all values."""
    steps = [step_options(trial.spec) for trial in trials]
    names = dict.fromkeys(name for step in steps for name in step)
    values = {name: _distinct(step.get(name) for step in steps) for name in names}
    told = {name: found[0] if len(found) == 1 else tuple(found) for name, found in values.items()}
    words = step_in_words(told) or _trace(trials, told)
    others = [
        _other(name, values[name])
        for name in told
        if name not in SPOKEN and words and name not in TOLD and (name, told[name]) != USUAL_SPEEDS
    ]
    return ", ".join([*([words[0].lower() + words[1:]] if words else []), *others])


def _distinct(values: Iterable[Any]) -> list[Any]:
    found = (value for value in values if value is not None)
    return list({repr(value): value for value in found}.values())


def _other(name: str, values: Sequence[Any]) -> str:
    return f"{name.replace('_', ' ')} {' or '.join(pretty(value) for value in values)}"


def _trace(trials: Sequence[Trial], options: Mapping[str, Any]) -> str:
    """``876 jobs``, ``8,819 requests served by llama2-7b``: of a single trace, as it is."""
    artifacts = {trial.artifact.pk: trial.artifact for trial in trials}
    artifact = next(iter(artifacts.values()))
    if len(artifacts) > 1 or artifact.kind not in ("jobs", "requests"):
        return ""
    if artifact.source == artifact.Source.GENERATED:
        return f"{' or '.join(f'{count:,}' for count in _distinct(_limits(trials)))} jobs drawn"
    counts = [card["value"] for card in artifact.summary.get("cards", ()) if card["label"] == artifact.kind]
    model = options.get("model")
    served = f" served by {' or '.join(model) if isinstance(model, tuple) else model}" if model else ""
    limit = options.get("limit")
    most = f"the first {limit:,} of " if isinstance(limit, int) else ""
    return "".join(f"{most}{count:,} {artifact.kind}{served}" for count in counts)


def _limits(trials: Sequence[Trial]) -> Iterable[int]:
    return (trial.spec["workload"]["options"]["limit"] for trial in trials)
