"""What all walks share: the application as it is installed, a worker, and the people of the cast."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.core.management import call_command

from tests.conftest import ROOT
from tests.webapp.browser import serving
from tests.webapp.cast import Cast, make_cast
from tests.webapp.walks.meter import Meter, metering
from tests.webapp.worker import working
from webapp.runs.models import Run
from webapp.runs.services import cancel

#: Letters of the walks that go on to their end, with nothing else on the way (`./lab walks`). As tests all of
#: them stop at their first figure, and every page on the way is looked at.
ASKED = os.environ.get("LAB_WALKS", "")
WHOLE = bool(ASKED)
VERDICTS = sorted((ROOT / "docs/evidence").glob("claims-*.json"))


@dataclass(frozen=True)
class Laboratory:
    address: str
    cast: Cast
    used: Meter
    folder: Path

    def end_all_runs(self) -> None:
        """The next walk has the worker for itself."""
        for run in Run.objects.exclude(state__in=Run.FINAL):
            cancel(run)


@contextmanager
def open_laboratory(folder: Path) -> Iterator[Laboratory]:
    """With the verdicts that ship and a worker that captures a model as soon as it was read."""
    cast = make_cast()
    call_command("import_evidence", *map(str, VERDICTS), verbosity=0)
    as_installed = {"CAPTURE_AT_ONCE": "1", "IDLE_SECONDS": "30"}
    worker_of_all = working(folder, all_cores=WHOLE, **as_installed)
    with serving() as address, worker_of_all as worker, metering(worker.pid) as used:
        yield Laboratory(address, cast, used, folder)
