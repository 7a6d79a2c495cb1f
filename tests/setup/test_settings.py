"""The deployment's settings: nothing starts without its secrets, and Django's own check finds
nothing to say.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

GIVEN = {
    "SECRET_KEY": "f3Xw9-long-and-random-for-this-test-alone-0123456789-abcdefghij",
    "ALLOWED_HOSTS": "lab.example.org",
    "DATABASE_URL": "postgresql://lab:pw@db/lab",
    "REDIS_URL": "redis://broker",
}


def check(**given: str) -> subprocess.CompletedProcess[str]:
    rest = {name: value for name, value in os.environ.items() if name not in GIVEN}
    environment = rest | given | {"DJANGO_SETTINGS_MODULE": "webapp.settings.deployment"}
    command = [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)


def test_the_deployment_check_is_clean() -> None:
    done = check(**GIVEN)
    assert done.returncode == 0, done.stderr
    assert "no issues (0 silenced)" in done.stdout + done.stderr


@pytest.mark.parametrize("missing", sorted(GIVEN))
def test_the_server_refuses_to_start_without(missing: str) -> None:
    done = check(**{name: value for name, value in GIVEN.items() if name != missing})
    assert done.returncode != 0
    assert f"set {missing} in the environment" in done.stderr
