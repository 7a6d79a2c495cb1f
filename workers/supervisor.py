"""Claims runs and carries each out in a trial: lease renewed, progress told, cancel obeyed, the end written
once.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError, close_old_connections, transaction
from django.db.models import Q

from experiments.core import dashboard
from experiments.core.errors import BadInput
from experiments.hardware import local
from experiments.run import revision
from webapp.artifacts.models import Artifact
from webapp.hosts.models import Host
from webapp.runs import lifecycle
from webapp.runs.claiming import EVERYTHING
from webapp.runs.lifecycle import Claim, Ending
from webapp.runs.models import Run
from workers import assignment, files, held, scratch
from workers.assignment import Assignment, Waits
from workers.code import lay_out
from workers.cores import Cores, Tenant
from workers.gpu import Device, free_devices
from workers.keeping import keep
from workers.sandbox import Cell
from workers.sources import Unusable
from workers.trial import Ended, Trial, Watch
from workers.usage import bytes_of_files

CANCELLED, TAKEN_OVER, STOPPING = "cancelled", "taken over by another worker", "the worker stops"
PAUSED = "paused: a measured run has the host's cores"
#: The lab's own troubles: storage, disk, network. The run is tried again, here or on another host.
LOSSES = (files.Unavailable, OSError)
#: What a trial may be told of this host's environment; no address of a server, no secret.
PASSED_ON = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "TZ")

log = logging.getLogger(__name__)
revision_here = functools.cache(revision)


@dataclass
class Supervisor:
    """One slot of a worker: one run at a time. ``stopping`` ends the trial at work and gives its run back.

    ``among`` are the runs that this slot takes, ``cores`` who else is at work on the host.
    """

    host: Host
    devices: list[Device]
    tier: str
    memory: int
    threads: int
    stopping: threading.Event = field(default_factory=threading.Event)
    cores: Cores = field(default_factory=Cores)
    among: Q = EVERYTHING

    def drain(self) -> int:
        """Carry out runs until none can be claimed; how many."""
        done = 0
        while not self.stopping.is_set() and self.carry_out_one():
            done += 1
        return done

    def carry_out_one(self) -> bool:
        if scratch.lack_of_room():
            return False  # the host's heartbeat says why
        with free_devices(self.devices, Path(settings.VAR) / "devices") as free, ExitStack() as in_hand:

            @transaction.atomic
            def claim_next(now: Q) -> Claim | None:
                claim = lifecycle.claim(self.host, list(free), self.tier, self.among & now)
                # Held before others see the claim: whenever this worker is killed, they are told.
                if claim is not None:
                    in_hand.enter_context(held.hold(claim))
                return claim

            with self.cores.occupy(claim_next) as tenant:
                if tenant is None:
                    return False
                device = free.keep(tenant.claim.run.needs)  # the others are free for other slots meanwhile
                self._carry_out(tenant, device)
            return True

    def _carry_out(self, tenant: Tenant, device: Device | None) -> None:
        claim = tenant.claim
        try:
            with scratch.folder() as work:
                self._try(tenant, work, device)
        except LOSSES as error:
            why = _explain_loss(claim.run, error)
            self._write(claim, lambda: lifecycle.postpone(claim, why))

    def _try(self, tenant: Tenant, work: Path, device: Device | None) -> None:
        """Raises one of ``LOSSES`` where it is no fault of the run that it cannot be carried out now."""
        claim = tenant.claim
        try:
            with keep(claim):
                given = assignment.assign(claim.run, work, self.memory)
                code = lay_out(claim.run.revision, work) if claim.run.revision else None
        except Unusable as error:
            ending = _failure(claim.run, Run.State.FAILED, str(error))
            self._write(claim, lambda: lifecycle.finish(claim, ending))
            return
        if isinstance(given, Waits):
            lifecycle.wait_for(claim, given.needed)
            return
        readable = (*given.inputs, *map(Path, settings.TRIAL_READABLE))
        cell = Cell(self.tier, work, readable, device.index if device else None, code)
        threads = local.core_count() if tenant.is_alone else self.threads
        environment = self._environment(work, device, threads)
        if claim.run.revision:
            environment["LAB_REVISION"] = claim.run.revision
        trial = Trial(given.command, cell, given.limits, environment, given.stdout)
        ended = trial.run(self._watch(tenant))
        if ended.exit_code != 0 and not ended.cause:
            _require_room(work)
        with keep(claim):
            self._write(claim, lambda: conclude(tenant, given, ended))

    def _watch(self, tenant: Tenant) -> Watch:
        claim = tenant.claim
        latest: list[tuple[float, str]] = []
        renewed = [time.monotonic()]

        def progress(fraction: float, step: str) -> None:
            latest[:] = [(fraction, step)]

        def must_pause() -> bool:
            return self.cores.must_pause(tenant)

        def asked_to_stop() -> str:
            if self.stopping.is_set():
                return STOPPING
            try:
                close_old_connections()
                told = latest.pop() if latest else None
                if must_pause():
                    told = (told[0] if told else claim.run.progress, PAUSED)
                if told:
                    claim.run.progress = told[0]
                if not lifecycle.renew(claim, told):
                    return TAKEN_OVER
                renewed[0] = time.monotonic()
                return CANCELLED if lifecycle.is_cancelled(claim) else ""
            except (OperationalError, InterfaceError) as error:
                log.warning("the database does not answer: %s", error)
                late = time.monotonic() - renewed[0] > settings.RUN_LEASE_SECONDS
                return TAKEN_OVER if late else ""

        return Watch(progress, asked_to_stop, settings.RUN_BEAT_SECONDS, must_pause)

    def _environment(self, work: Path, device: Device | None, threads: int) -> dict[str, str]:
        told = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        return told | {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(work),
            "USER": "trial",
            "TMPDIR": str(work),
            "LAB_CACHE": str(work / "cache"),
            "LAB_REVISION": revision_here(),
            "OMP_NUM_THREADS": str(threads),
            "PYTHONDONTWRITEBYTECODE": "1",
            "CUDA_VISIBLE_DEVICES": device.uuid if device else "",
        }

    def _write(self, claim: Claim, write: Any) -> None:
        """The last word about an attempt; tried again while the lease lasts when the database is away."""
        give_up = time.monotonic() + settings.RUN_LEASE_SECONDS
        while True:
            try:
                close_old_connections()
                if not write():
                    log.warning("run %s: attempt %d was taken over", claim.run.pk, claim.attempt)
                return
            except (OperationalError, InterfaceError):
                if time.monotonic() > give_up:
                    raise
                time.sleep(1)


def conclude(tenant: Tenant, given: Assignment, ended: Ended) -> bool:
    """Write what the end of the trial means. False when the run is no longer ours to write about."""
    claim = tenant.claim
    seen = assignment.diagnosis_of(ended)
    if ended.cause == TAKEN_OVER:
        return False
    if ended.cause == STOPPING:
        return lifecycle.release(claim, lost=True)
    if ended.cause == CANCELLED:
        return lifecycle.finish(claim, Ending(Run.State.CANCELLED, CANCELLED, diagnosis=seen))
    if ended.signal and not ended.cause:
        reason = f"crashed with {ended.signal}"
        return lifecycle.record_crash(claim, reason, seen, _rejection(claim.run, reason))
    try:
        ending = _with_company(_ending(claim.run, given, ended), tenant)
    except LOSSES as error:
        return lifecycle.postpone(claim, _explain_loss(claim.run, error))
    return lifecycle.finish(claim, replace(ending, diagnosis=seen))


def _with_company(ending: Ending, tenant: Tenant) -> Ending:
    """A measured answer says what else was at work on its host."""
    if ending.outcome is None or not tenant.is_measured:
        return ending
    provenance = {**ending.outcome.provenance, **tenant.told()}
    return replace(ending, outcome=replace(ending.outcome, provenance=provenance))


def _ending(run: Run, given: Assignment, ended: Ended) -> Ending:
    if ended.cause:
        failed = _failure(run, Run.State.FAILED, ended.cause)
        return replace(failed, dashboard_status=dashboard.TIMEOUT if ended.took_too_long else dashboard.OOM)
    if ended.exit_code == assignment.BAD_INPUT:
        return _failure(run, Run.State.REJECTED, assignment.last_line(ended.log))
    try:
        return given.collect(ended)
    except BadInput as error:
        if ended.exit_code == 0:
            return _failure(run, Run.State.FAILED, f"the trial left no valid answer: {error}")
        said = assignment.last_line(ended.log)
        return _failure(run, Run.State.FAILED, f"ended with exit code {ended.exit_code}: {said}")


def _require_room(work: Path) -> None:
    """Raises ``OSError`` where a trial may have failed for a full disk that it did not fill itself."""
    if why := scratch.lack_of_room(bytes_of_files(work)):
        raise OSError(errno.ENOSPC, why)


def _explain_loss(run: Run, error: Exception) -> str:
    """What went wrong here, for the run's page; where it did is for the log alone."""
    log.warning("run %s is tried again: %s", run.pk, error)
    if isinstance(error, files.Unavailable):
        return f"the file of {run.artifact} cannot be had now" if run.artifact else "a file cannot be had now"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _failure(run: Run, state: str, reason: str) -> Ending:
    """Reasons name the artifact as its owner calls it, not a path of this host."""
    if run.artifact is not None and run.artifact.blob_id:
        for path in (
            str(Path(settings.BLOB_CACHE) / run.artifact.blob_id[:2] / run.artifact.blob_id),
            run.artifact.blob_id,
        ):
            reason = reason.replace(path, run.artifact.name)
    rejection = _rejection(run, reason)
    return Ending(Run.State.REJECTED if rejection else state, reason, artifact=rejection)


def _rejection(run: Run, reason: str) -> dict[str, Any] | None:
    """A file that cannot be read is rejected with the reason; one that was read before stays what it was."""
    if run.kind != Run.Kind.INSPECT or run.spec.get("beside"):
        return None
    return {"state": Artifact.State.REJECTED, "reason": reason}
