"""What all walks share: the application as it is installed, a worker, and the people of the cast."""

from __future__ import annotations

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
    with serving() as address, working(folder, **as_installed) as worker, metering(worker.pid) as used:
        yield Laboratory(address, cast, used, folder)
