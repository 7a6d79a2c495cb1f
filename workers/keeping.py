"""A lease that is renewed while no trial is there to be watched."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.db import InterfaceError, OperationalError, connections

from webapp.runs import lifecycle
from webapp.runs.lifecycle import Claim

log = logging.getLogger(__name__)


@contextmanager
def keep(claim: Claim) -> Iterator[None]:
    """Renew the lease of ``claim`` meanwhile: over a slow link a file may take many leases to come or go."""
    done = threading.Event()
    keeper = threading.Thread(target=_renew_until, args=(claim, done), name="keeper", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        done.set()
        keeper.join()


def _renew_until(claim: Claim, done: threading.Event) -> None:
    try:
        while not done.wait(settings.RUN_LEASE_SECONDS / 3):
            try:
                lifecycle.renew(claim, None)
            except (OperationalError, InterfaceError) as error:
                log.warning("the database does not answer: %s", error)
                connections.close_all()
    finally:
        connections.close_all()
