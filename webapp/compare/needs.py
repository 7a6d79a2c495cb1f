"""What runs that do not fit need of a device, as far as their outcomes tell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import F

from experiments import hardware
from experiments.core.errors import BadInput
from webapp.compare.entries import Entry
from webapp.runs.models import RunDocument

#: Reasons that speak of memory beyond the device's: what is missing there says nothing of the device.
ELSEWHERE = re.compile(r"\b(host|storage|remote)\b (lacks|do not fit)")


@dataclass(frozen=True)
class Need:
    """What a run that does not fit needs; ``None`` where its outcome does not tell.

    ``memory``   bytes of the fullest device.
    ``seconds``  time of the step on the least device that carries it out.
    ``as_it_is`` bytes of the step with nothing moved, whatever the policy.
    """

    memory: float | None = None
    seconds: float | None = None
    as_it_is: float | None = None


#: What is asked of an outcome, by name.
_TOLD = {
    "missing": "missing_bytes",
    "least": "least_device__memory",
    "seconds": "least_device__step_time",
    "live": "live_peak",
}


def needs_of(entries: Iterable[Entry], capacity: float | None) -> dict[UUID, Need]:
    """By run: the needs of ``entries`` on devices of ``capacity`` bytes, of each entry its first run."""
    runs = {entry.run.pk: entry.run.reason for entry in entries}
    paths = [F(f"outcome__provenance__{path}") for path in _TOLD.values()]
    rows = RunDocument.objects.filter(run__in=runs).values_list("run", *paths)
    return {run: _need(dict(zip(_TOLD, told, strict=True)), runs[run], capacity) for run, *told in rows}


def _need(told: Mapping[str, Any], reason: str, capacity: float | None) -> Need:
    """What the least device has that carries the plan out, else what was missing when it stopped."""
    missing = None if ELSEWHERE.search(reason) else told["missing"]
    stopped_at = None if missing is None or capacity is None else capacity + missing
    return Need(told["least"] or stopped_at, told["seconds"], told["live"])


def capacity_of(entry: Entry) -> float | None:
    """Bytes of the smallest device that a run is asked for; ``None`` where no sheet names it."""
    found = _hardware(entry)
    return float(min(group.node.device.memory_bytes for group in found.groups)) if found else None


def devices_of(entry: Entry) -> int | None:
    """How many devices a run is asked for; ``None`` where no sheet names them."""
    found = _hardware(entry)
    return found.device_count if found else None


def _hardware(entry: Entry) -> hardware.Hardware | None:
    try:
        return hardware.resolve(entry.run.spec["hardware"])
    except (BadInput, KeyError):
        return None
