"""Job traces drawn from a seed: Gavel's, after the durations of Microsoft's Philly cluster, and exponential.

``gavel`` has jobs of one GPU, ``philly`` also of 2, 4 and 8, as in that cluster (70, 10, 15 and 5 %). The
draws and their order are those of Gavel's own generator, so that a seed gives the authors' trace: of each job
its GPUs, whether it is a long one, its duration (log-uniform), its model; between jobs, from a second
generator, the time until the next. ``annotated`` and ``elastic`` are the jobs of ``philly`` with what
``annotated_jobs`` and ``elastic_jobs`` draw.

``exponential`` has jobs of one GPU that take an hour on average: gaps and durations are exponential, for
which queueing theory knows the mean completion time under several disciplines.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping

import numpy as np

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.workloads.annotated_jobs import annotate
from experiments.workloads.elastic_jobs import make_elastic
from experiments.workloads.jobs import JobTrace
from experiments.workloads.profiles.device_speeds import DeviceSpeeds

#: Families of models with their batch sizes, and whether they run on several GPUs.
FAMILIES: tuple[tuple[str, tuple[int, ...], bool], ...] = (
    ("ResNet-18", (16, 32, 64, 128, 256), True),
    ("ResNet-50", (16, 32, 64, 128), True),
    ("Transformer", (16, 32, 64, 128, 256), True),
    ("LM", (5, 10, 20, 40, 80), True),
    ("Recommendation", (512, 1024, 2048, 4096, 8192), False),
)
SINGLE = ("A3C", "CycleGAN")
MODELS = (
    *((f"{name} (batch size {size})", many) for name, sizes, many in FAMILIES for size in sizes),
    *((name, False) for name in SINGLE),
)
#: From which draw on a job has so many GPUs, the largest first.
GPUS = ((0.95, 8), (0.8, 4), (0.7, 2))
#: From which draw on a job is long; exponents of ten of minutes, of short and long ones.
LONG, SHORT_MINUTES, LONG_MINUTES = 0.8, (1.5, 3.0), (3.0, 4.0)
#: What is added to a run's seed for jobs and for the times between them.
JOB_SEED, GAP_SEED = 2, 3
REFERENCE = "v100"
PHILLYS = "durations are those on v100, log-uniform as in Microsoft's Philly cluster"
#: Seconds that a job of ``exponential`` takes on average.
MEAN_SECONDS = 3600.0
#: Every kind with what is assumed of its jobs.
KINDS: Mapping[str, tuple[str, ...]] = {
    "gavel": (PHILLYS,),
    "philly": (PHILLYS,),
    "annotated": (
        PHILLYS,
        "every second job is guaranteed, with a deadline: 1.2, 2 or 10 times its duration, as Gavel draws it",
        "four tenants, equally likely; a model uses a part of its devices, uniform; all devices are alike",
    ),
    "elastic": (
        PHILLYS,
        "every job must end within 0.5 to 1.5 times its duration, as ElasticFlow draws them",
        "speeds by number of GPUs are those of v100, on every device",
    ),
    "exponential": ("durations are exponential, an hour in the mean, on every device",),
}
#: What the jobs of every kind tell besides submission, GPUs and duration.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "gavel": ("model", "iterations"),
    "philly": ("model", "iterations"),
    "annotated": ("deadline", "model", "tenant", "class", "utilization"),
    "elastic": ("deadline", "model", "batch", "iterations"),
    "exponential": (),
}
#: The rate (per second) and the number of jobs where nobody names them.
USUAL_RATE, USUAL_JOBS = 1 / 9000, 1000


def settle(options: WorkloadOptions) -> tuple[float, int]:
    """The rate and the number of jobs that ``options`` ask for.

    Without a limit there are twice as many jobs as the window reaches to: others come while its jobs run.
    """
    last = (options.window or "").rpartition(":")[2]
    reached = 2 * int(last[:9]) if last.isascii() and last.isdigit() else 0
    return options.rate or USUAL_RATE, options.limit or reached or USUAL_JOBS


def generate(kind: str, seed: int, rate: float, count: int, speeds: DeviceSpeeds) -> JobTrace:
    """Return ``count`` jobs submitted at ``rate`` per second on average.

    ``speeds`` tells the steps that a V100 does in each job's seconds.
    """
    if kind not in KINDS:
        raise BadInput(f"{kind!r:.40} is not generated", "workload.source", " or ".join(KINDS))
    if kind == "exponential":
        return _exponential(seed, rate, count)
    rows = list(_jobs(kind, seed, count))
    model = tuple(row[0] for row in rows)
    gpus = np.array([row[1] for row in rows], np.int64)
    service = np.array([row[2] for row in rows])
    table = speeds.compact.get(REFERENCE)
    known = {} if table is None else table.alone
    for variant in zip(model, gpus.tolist(), strict=True):
        if not known.get(variant):
            what = f"{speeds.name} has no speed of {variant[0]!r} on {variant[1]} {REFERENCE}"
            raise BadInput(what, f"generated:{kind}", "Gavel's table of speeds as options.extra")
    steps = np.array([known[variant] for variant in zip(model, gpus.tolist(), strict=True)]) * service
    trace = JobTrace.from_columns(
        name=f"generated:{kind}",
        job=tuple(map(str, range(count))),
        submit=np.array(_arrivals(seed, rate, count)),
        gpus=gpus,
        service=service,
        deadline=np.full(count, np.nan),
        model=model,
        tenant=("",) * count,
        traits={"iterations": steps},
        facts={"jobs": count, "seed": seed, "rate": rate},
        profiles=speeds,
    )
    if kind == "annotated":
        return annotate(trace, seed, [name for name, _ in MODELS])
    return make_elastic(trace, seed, f"{speeds.name} on {REFERENCE}", known) if kind == "elastic" else trace


def _exponential(seed: int, rate: float, count: int) -> JobTrace:
    return JobTrace.from_columns(
        name="generated:exponential",
        job=tuple(map(str, range(count))),
        submit=np.array(_arrivals(seed, rate, count)),
        gpus=np.ones(count, np.int64),
        service=np.random.default_rng([seed, JOB_SEED]).exponential(MEAN_SECONDS, count),
        deadline=np.full(count, np.nan),
        model=("",) * count,
        tenant=("",) * count,
        facts={"jobs": count, "seed": seed, "rate": rate},
    )


def _jobs(kind: str, seed: int, count: int) -> Iterator[tuple[str, int, float]]:
    """Model, GPUs and seconds on a V100 of each job."""
    rng = random.Random(seed + JOB_SEED)
    for _ in range(count):
        drawn = rng.uniform(0, 1)
        gpus = next((size for least, size in GPUS if drawn >= least), 1) if kind != "gavel" else 1
        exponents = LONG_MINUTES if rng.random() >= LONG else SHORT_MINUTES
        seconds = 60 * 10 ** rng.uniform(*exponents)
        model, many = rng.choice(MODELS)
        while gpus > 1 and not many:
            model, many = rng.choice(MODELS)
        yield model, gpus, seconds


def _arrivals(seed: int, rate: float, count: int) -> list[float]:
    """Times of submission, the first at 0, exponential gaps between them."""
    rng, now, times = random.Random(seed + GAP_SEED), 0.0, list[float]()
    for _ in range(count):
        times.append(now)
        now = -math.log(1.0 - rng.random()) / rate + now
    return times
