"""Real workers for the tests: processes of their own on the test database, with the trials of
``trials.py``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from tests.workers import trials
from tests.workers.crew import Crew

PROGRAM = Path(trials.__file__)


@pytest.fixture
def crew(transactional_db: None, tmp_path: Path) -> Iterator[Crew]:
    """Workers that take the behaviors of ``trials.py``; a lease of two seconds, 512 MiB a trial."""
    database = connection.settings_dict
    address = f"{database['USER']}:{database['PASSWORD']}@{database['HOST']}:{database['PORT']}"
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "webapp.settings.test",
        "DATABASE_URL": f"postgresql://{address}/{database['NAME']}",
        "REDIS_URL": settings.REDIS_URL,
        "LAB_VAR": str(tmp_path / "var"),
        "TMPDIR": str(tmp_path / "trials"),
        "TRIAL_COMMAND": f"{sys.executable} {PROGRAM}",
        "TRIAL_READABLE": str(PROGRAM),
        "TRIAL_MEMORY_BYTES": str(2**29),
        "RUN_LEASE_SECONDS": "2",
        "RUN_BEAT_SECONDS": "0.2",
        "RUN_IDLE_SECONDS": "0.3",
    }
    (tmp_path / "trials").mkdir()
    made = Crew(environment, tmp_path / "workers.log")
    try:
        yield made
    finally:
        made.dismiss()
