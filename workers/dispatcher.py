"""The slots of a worker: threads that carry out runs when woken, and look by themselves every few seconds."""

from __future__ import annotations

import compileall
import logging
import os
import platform
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, close_old_connections, connections
from django.db.models import Q

from experiments.core.policy import MINUTES
from experiments.hardware import local
from experiments.run import versions
from webapp.hosts import services
from webapp.hosts.models import Host
from webapp.runs import lifecycle
from webapp.runs.claiming import EVERYTHING
from workers import gpu, held, joined, sandbox, scratch
from workers.cores import Cores
from workers.sandbox import ROOT
from workers.supervisor import Supervisor

HEARTBEAT_SECONDS = 15
#: For how long a slot keeps its connection: a new one costs ten times what renewing a lease does.
CONNECTION_SECONDS = 600
#: Of the host's memory, left to the system and the worker itself.
SPARE = 0.15
#: What the first of several slots takes, so that readings and quick policies never wait for searches alone.
QUICK = ~Q(effort=MINUTES)

log = logging.getLogger(__name__)


@dataclass
class Dispatcher:
    slots: int
    _woken: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _stopping: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        connections.settings["default"]["CONN_MAX_AGE"] = CONNECTION_SECONDS
        scratch.sweep()
        compile_domain()
        devices = gpu.devices()
        host = register(self.slots, devices)
        held.release_lost()
        memory = settings.TRIAL_MEMORY_BYTES or int(local.memory_bytes() * (1 - SPARE) / self.slots)
        threads = max(1, local.core_count() // self.slots)
        cores = Cores(self.wake)
        for number in range(self.slots):
            takes = QUICK if number == 0 and self.slots > 1 else EVERYTHING
            slot = Supervisor(host, devices, host.sandbox_tier, memory, threads, self._stopping, cores, takes)
            self._run(f"slot-{number}", self._work, slot)
        self._run("heartbeat", self._beat, host)

    def wake(self) -> None:
        """Every slot looks for runs once."""
        self._woken.release(self.slots)

    def stop(self) -> None:
        """End the trials at work and give their runs back; returns when that is done."""
        self._stopping.set()
        self.wake()
        for thread in self._threads:
            thread.join()

    def _run(self, name: str, target: Any, argument: Any) -> None:
        def work() -> None:
            try:
                target(argument)
            finally:
                connections.close_all()

        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _work(self, slot: Supervisor) -> None:
        while not self._stopping.is_set():
            try:
                close_old_connections()
                slot.drain()
            except (OperationalError, InterfaceError) as error:
                log.warning("the database does not answer: %s", error)
            except DatabaseError:
                # The run is taken up again when its lease ends; the slot goes on with others.
                log.exception("the database refused what is said of a run")
            except OSError:
                log.exception("a trial could not be started")
            self._woken.acquire(timeout=settings.RUN_IDLE_SECONDS)

    def _beat(self, host: Host) -> None:
        """Say that this host lives, and take back what others lost: beat's messages may not come through."""
        while not self._stopping.wait(HEARTBEAT_SECONDS):
            try:
                close_old_connections()
                joined.require_same_edition()
                services.heartbeat(host, scratch.lack_of_room())
                if held.release_lost() + lifecycle.reap():
                    self.wake()
            except (OperationalError, InterfaceError) as error:
                log.warning("the database does not answer: %s", error)


def compile_domain() -> None:
    """Byte code of the domain beside its sources: trials cannot write it, and each would compile what it
    imports anew.

    That was a third of a short trial's time. Where the checkout cannot be written, trials only start more
    slowly.
    """
    compileall.compile_dir(ROOT / "experiments", quiet=2)


def register(slots: int, devices: list[gpu.Device]) -> Host:
    """Tell the database what this host has; waits while the database is away."""
    facts = {
        "device_kinds": sorted({device.kind for device in devices}),
        "devices": [{"name": d.name, "kind": d.kind, "memory_bytes": d.memory} for d in devices],
        "cores": local.core_count(),
        "memory_bytes": local.memory_bytes(),
        "versions": versions(),
        "sandbox_tier": sandbox.best_tier(settings.TRIAL_UNSAFE),
        "slots": slots,
        "trouble": scratch.lack_of_room(),
    }
    while True:
        try:
            return services.register(os.environ.get("LAB_HOST_NAME") or platform.node(), facts)
        except OperationalError as error:
            log.warning("the database does not answer: %s", error)
            time.sleep(2)
