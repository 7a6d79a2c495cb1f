"""``philly``: the job log of Microsoft's Philly clusters (``cluster_job_log``, JSON).

A job is a list of attempts to run it, each with a start, an end and the GPUs it had. Attempts may be missing,
and so may their times: a job runs as long as all its attempts with both did together. The virtual cluster is
the tenant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.core import jsonio
from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.readers.job_rows import apply_options, implausible, merge_jobs
from experiments.readers.left_out import leave_out, tell
from experiments.readers.timestamps import EXPECTED, MISSING, seconds_of
from experiments.workloads.jobs import JobTrace

MAX_BYTES = 1 << 28
MAX_JOBS, MAX_GPUS = 2_000_000, 10**6
KEYS = (b'"jobid"', b'"attempts"', b'"submitted_time"')


@dataclass(frozen=True)
class PhillyJob:
    """One entry of the log.

    ``submit`` in s (NaN: not told), ``gpus`` the most that an attempt had, ``service`` the seconds of all
    attempts with a start and an end. ``attempts`` counts all of them, ``untimed`` those that lack a time.
    ``runs`` says that the last one has a start and no end, ``uneven`` that attempts had unlike numbers.
    """

    name: str
    user: str
    tenant: str
    status: str
    submit: float
    gpus: int
    service: float
    attempts: int
    untimed: int
    runs: bool
    uneven: bool


def _recognizes(head: bytes, name: str) -> bool:
    return head.lstrip().startswith(b"[") and all(key in head for key in KEYS)


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    if len(data) > MAX_BYTES:
        raise BadInput(f"{len(data)} bytes", name, f"at most {MAX_BYTES}")
    entries = jsonio.loads(data, name)
    if not isinstance(entries, list) or not 0 < len(entries) <= MAX_JOBS:
        raise BadInput("is no list of jobs", name, f"1 to {MAX_JOBS} jobs")
    jobs = [_job(entry, f"{name}, job {row}") for row, entry in enumerate(entries, 1)]
    _refuse_twice(jobs, name)
    kept, left_out = leave_out(
        (
            (np.array([not job.attempts for job in jobs]), "have no attempts"),
            (np.array([math.isnan(job.submit) for job in jobs]), "have no time of submission"),
            (np.array([job.runs for job in jobs]), "have not ended"),
            (np.array([job.untimed == job.attempts for job in jobs]), "have no attempt with both times"),
            (np.array([not job.gpus for job in jobs]), "had no GPU"),
        ),
        name,
    )
    chosen = [jobs[row] for row in kept.tolist()]
    trace = _trace(name, chosen, left_out)
    return Reading(apply_options(trace, options), _assumed(chosen, left_out), implausible(trace))


def _trace(name: str, jobs: Sequence[PhillyJob], left_out: Mapping[str, int]) -> JobTrace:
    submit = np.array([job.submit for job in jobs])
    return JobTrace.from_columns(
        name=name,
        job=tuple(job.name for job in jobs),
        submit=submit - submit.min(),
        gpus=np.array([job.gpus for job in jobs], np.int64),
        service=np.array([job.service for job in jobs]),
        deadline=np.full(len(jobs), np.nan),
        model=("",) * len(jobs),
        tenant=tuple(job.tenant for job in jobs),
        traits={"user": tuple(job.user for job in jobs)},
        original={"status": tuple(job.status for job in jobs)},
        facts={"jobs": len(jobs), "left out": dict(left_out)},
    )


def _assumed(jobs: Sequence[PhillyJob], left_out: Mapping[str, int]) -> tuple[str, ...]:
    again = sum(job.attempts > 1 for job in jobs)
    untimed, uneven = sum(job.untimed for job in jobs), sum(job.uneven for job in jobs)
    return (
        "time 0 is the first submission; vc is the tenant",
        f"a job runs as long as all its attempts together ({again} jobs had several), however it ended",
        *((f"{untimed} attempts without a start or an end count for nothing",) if untimed else ()),
        *((f"{uneven} jobs had unlike numbers of GPUs: the largest counts",) if uneven else ()),
        *tell(left_out),
    )


def _refuse_twice(jobs: Sequence[PhillyJob], name: str) -> None:
    first: dict[str, int] = {}
    for row, job in enumerate(jobs, 1):
        if job.name in first:
            what = f"jobid {job.name!r:.60} appears twice (first as job {first[job.name]})"
            raise BadInput(what, f"{name}, job {row}", "unique identifiers")
        first[job.name] = row


def _job(entry: Any, where: str) -> PhillyJob:
    if not isinstance(entry, dict):
        raise BadInput(f"{entry!r:.40} is no job", where, "an object with jobid and attempts")
    name = _text(entry, "jobid", where)
    if not name:
        raise BadInput("jobid is empty", where, "an identifier")
    attempts = entry.get("attempts")
    if not isinstance(attempts, list):
        raise BadInput(f"attempts is {attempts!r:.40}", where, "a list, which may be empty")
    spans = [_span(attempt, f"{where}, attempt {number}") for number, attempt in enumerate(attempts, 1)]
    sizes = [_gpus(attempt, f"{where}, attempt {number}") for number, attempt in enumerate(attempts, 1)]
    seconds = [end - start for start, end in spans]
    return PhillyJob(
        name,
        _text(entry, "user", where),
        _text(entry, "vc", where),
        _text(entry, "status", where),
        _time(entry, "submitted_time", where),
        max(sizes, default=0),
        sum(one for one in seconds if not math.isnan(one)),
        len(attempts),
        sum(map(math.isnan, seconds)),
        bool(spans) and not math.isnan(spans[-1][0]) and math.isnan(spans[-1][1]),
        len(set(filter(None, sizes))) > 1,
    )


def _text(entry: Mapping[str, Any], key: str, where: str) -> str:
    value = entry.get(key)
    if value is not None and not isinstance(value, str):
        raise BadInput(f"{key} is {value!r:.40}", where, "text")
    return value or ""


def _time(entry: Mapping[str, Any], key: str, where: str) -> float:
    """Seconds on the log's clock; NaN where it has none."""
    text = _text(entry, key, where)
    if text in MISSING:
        return math.nan
    seconds = seconds_of(text)
    if seconds is None:
        raise BadInput(f"{key} {text!r:.40} is not a time", where, f"{EXPECTED}, or nothing")
    return seconds


def _span(attempt: Any, where: str) -> tuple[float, float]:
    if not isinstance(attempt, dict):
        raise BadInput(f"{attempt!r:.40} is no attempt", where, "an object with start_time and end_time")
    start, end = _time(attempt, "start_time", where), _time(attempt, "end_time", where)
    if end < start:
        what = f"end_time {attempt['end_time']!r:.40} is before the attempt starts"
        raise BadInput(what, where, f"not before {attempt['start_time']}")
    return start, end


def _gpus(attempt: Mapping[str, Any], where: str) -> int:
    servers = attempt.get("detail") or []
    if not isinstance(servers, list):
        raise BadInput(f"detail is {servers!r:.40}", where, "a list of servers")
    count = 0
    for server in servers:
        gpus = server.get("gpus") if isinstance(server, dict) else None
        if not isinstance(gpus, list):
            raise BadInput(f"gpus is {gpus!r:.40}", where, "a list of the GPUs of a server")
        count += len(gpus)
    if count > MAX_GPUS:
        raise BadInput(f"{count} GPUs", where, f"at most {MAX_GPUS}")
    return count


READER = Reader(
    "philly",
    "jobs",
    "the job log of Microsoft's Philly clusters (cluster_job_log): jobs with their attempts (JSON)",
    _recognizes,
    _read,
    merge_jobs,
    columns=("tenant", "user"),
)
