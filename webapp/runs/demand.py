"""What an experiment asks of its hardware before it runs: memory of a step, GPUs of a job trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.core.errors import BadInput
from experiments.core.precision import state_bytes
from experiments.hardware import Hardware
from webapp.artifacts.fit import fit_with
from webapp.artifacts.models import Artifact
from webapp.artifacts.workloads.jobs import JobDemand
from webapp.runs.grid import Trial

#: Steps of a grid that are looked at: the largest of them is shown.
MOST_STEPS = 16
#: Families whose runs are training steps.
TRAINS = ("memory", "parallel")
#: The figure of a trace's summary that is its demand.
MEAN_DEMAND = "mean demand"


@dataclass(frozen=True)
class Need:
    """Bytes that a step needs when no policy moves or recomputes anything, next to a device's ``capacity``.

    ``is_least``: activations are not known for these options, so it is the model's states alone.
    """

    artifact: Artifact
    bytes: float
    capacity: float
    device: str
    is_least: bool
    is_one_of: int

    @property
    def fits(self) -> bool:
        return self.bytes <= self.capacity

    @property
    def _widest(self) -> float:
        return max(self.bytes, self.capacity)

    @property
    def inside(self) -> str:
        """Of a bar 100 wide: what the device holds."""
        return f"{100 * min(self.bytes, self.capacity) / self._widest:.2f}"

    @property
    def total(self) -> str:
        return f"{100 * self.bytes / self._widest:.2f}"

    @property
    def limit(self) -> str:
        return f"{100 * self.capacity / self._widest:.2f}"


@dataclass(frozen=True)
class Load:
    """GPUs that a trace's jobs want on average over its span, next to those that there are."""

    artifact: Artifact
    wanted: float
    gpus: int
    too_large: int

    @property
    def share(self) -> float:
        return self.wanted / self.gpus


def need_of(trials: Sequence[Trial], hardware: Hardware) -> Need | None:
    """The largest step among those asked for; ``None`` where nothing is known of its parameters."""
    steps = list(_steps(trials))
    found = [need for artifact, options in steps[:MOST_STEPS] if (need := _need(artifact, options))]
    if not found:
        return None
    artifact, size, is_least = max(found, key=lambda one: one[1])
    device = hardware.device
    return Need(artifact, size, float(device.memory_bytes), device.name, is_least, len(steps))


def _steps(trials: Sequence[Trial]) -> Iterator[tuple[Artifact, Mapping[str, Any]]]:
    seen = set()
    for trial in trials:
        options = trial.spec["workload"]["options"]
        key = (trial.artifact.pk, *sorted((name, repr(value)) for name, value in options.items()))
        if trial.artifact.kind == "model" and trial.spec["family"] in TRAINS and key not in seen:
            seen.add(key)
            yield trial.artifact, options


def _need(artifact: Artifact, options: Mapping[str, Any]) -> tuple[Artifact, float, bool] | None:
    fit = fit_with(artifact, options) if "batch" in options else None
    if fit is None:
        return None
    if fit.is_captured:
        return artifact, fit.peak, False
    parameters = sum(one["parameters"] for one in artifact.summary["parameters"])
    each = _bytes_of_states(options)
    return (artifact, each * parameters, True) if each else None


def _bytes_of_states(options: Mapping[str, Any]) -> float:
    """What training keeps for a parameter; 0 where that is not told by these options."""
    try:
        states = state_bytes(options["dtype"], options["optimizer"], options["precision"])
    except (BadInput, KeyError):
        return 0.0
    return float(sum(states.parts.values()))


def load_of(trials: Sequence[Trial], gpus: int) -> Load | None:
    """The demand of the first job trace on so many GPUs, at the most arrivals that are asked for.

    ``None`` without one, or where it is cut.
    """
    found = [trial for trial in trials if trial.artifact.kind == "jobs"]
    same = [trial for trial in found if trial.artifact == found[0].artifact]
    wanted = [_wanted(trial) for trial in same]
    known = [gpus for gpus in wanted if gpus]
    if not known:
        return None
    told = found[0].artifact.summary.get("demand")
    return Load(found[0].artifact, max(known), gpus, JobDemand(told, gpus).too_large if told else 0)


def _wanted(trial: Trial) -> float | None:
    """GPUs on average: as the trace tells, or what a job takes on average as often as they come."""
    options, summary = trial.spec["workload"]["options"], trial.artifact.summary
    rate, demand = options.get("rate"), summary.get("demand")
    if options.get("limit") and trial.artifact.source != Artifact.Source.GENERATED:
        return None
    if rate:
        return float(demand["gpu_seconds"] / demand["jobs"] * rate) if demand else None
    told = (card["value"] for card in summary.get("cards", ()) if card["label"] == MEAN_DEMAND)
    return next(map(float, told), None)
