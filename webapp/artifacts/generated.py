"""Traces that runs draw from a seed, as artifacts of a project: no file, described by an example."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from experiments.core import knobs
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload
from experiments.hardware import Hardware
from experiments.sources import GENERATED, SPEEDS_OF_GENERATED, jobs_of, load
from experiments.summaries import summary
from experiments.workloads import generated_jobs, generated_requests
from experiments.workloads.profiles.device_speeds import DeviceSpeeds
from webapp.artifacts.models import Artifact

#: Every such source, with what it is.
TRACES: Mapping[str, str] = {
    f"{GENERATED}gavel": "jobs of one GPU, as Gavel draws them",
    f"{GENERATED}philly": "jobs of 1 to 8 GPUs, as in Microsoft's Philly cluster",
    f"{GENERATED}annotated": "the same with deadlines, tenants, classes and utilizations, on any device",
    f"{GENERATED}elastic": "the same with deadlines and speeds by number of GPUs, on any device",
    f"{GENERATED}exponential": "jobs of one GPU and an hour in the mean, of which queueing theory knows all",
    f"{GENERATED}poisson": "requests with the lengths of Orca's study, at random",
    f"{GENERATED}bursts": "the same requests in bursts",
    f"{GENERATED}sharegpt": "requests as long as ShareGPT's conversations in the mean, at random",
    f"{GENERATED}alpaca": "requests as long as Alpaca's instructions in the mean, at random",
    f"{GENERATED}openchat": "conversations with GPT-4, as long as in Sarathi-Serve's study, at random",
    f"{GENERATED}arxiv": "papers to summarize, as long as in Sarathi-Serve's study, at random",
}
#: Those whose jobs are as fast as the table says for the type of device.
TIMED_BY_DEVICE = (f"{GENERATED}gavel", f"{GENERATED}philly")
#: The first device that the usual table of speeds was measured on, by its sheet.
USUAL_DEVICE = "v100-16g"


def describe(name: str) -> dict[str, Any]:
    """The columns of an artifact that is drawn, with an example: the usual rate and jobs, of seed 0."""
    loaded = load(Workload(name))
    return {
        "kind": loaded.kind,
        "format": loaded.format,
        "summary": summary(loaded.value),
        "assumed": [f"an example: {loaded.assumed[0]}; each run draws its own", *loaded.assumed[1:]],
        "warnings": list(loaded.warnings),
        "state": Artifact.State.READY,
    }


def settle_options(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """``given`` with what it leaves open: rate and number, and of ``jobs`` the table of speeds."""
    plain = {name: value for name, value in given.items() if name in ("rate", "limit", "window")}
    options = knobs.load(WorkloadOptions, plain, "options")
    if kind == "jobs":
        rate, count = generated_jobs.settle(options)
        usual: dict[str, Any] = {"rate": rate, "limit": count, "extra": SPEEDS_OF_GENERATED}
    else:
        rate, count = generated_requests.settle(options)
        usual = {"rate": rate, "limit": count}
    return {**given, **{name: value for name, value in usual.items() if given.get(name) is None}}


def lack_of_speeds(name: str, extra: str, hardware: Hardware) -> str:
    """The device on which jobs of a drawn trace have no usual speed, in words; empty where there is none."""
    if name not in TIMED_BY_DEVICE or extra != SPEEDS_OF_GENERATED:
        return ""
    speeds = _usual_speeds()
    unknown = {node.device.name for node in hardware.nodes if speeds.kind_of(node.device.name) is None}
    types = ", ".join(sorted(speeds.compact))
    return (
        f"how fast jobs run on {', '.join(sorted(unknown))} is not told, only on {types}" if unknown else ""
    )


@functools.cache
def _usual_speeds() -> DeviceSpeeds:
    found: DeviceSpeeds = jobs_of(Workload(next(iter(TRACES))))[0].profiles
    return found
