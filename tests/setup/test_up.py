"""The first login: kept where only its owner reads it, and not invented for a database that has users."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from labtools import private_files, up
from labtools.problems import Problem


def test_the_generated_login_is_kept_for_every_later_start(tmp_path: Path) -> None:
    login = tmp_path / "login.txt"
    up._keep_login(login, 'loading the demo\n{"username": "admin", "password": "k3y"}\n')
    assert login.read_text() == "login     admin\npassword  k3y\n"
    assert stat.S_IMODE(login.stat().st_mode) == 0o600


def test_a_database_that_had_users_gets_no_invented_login(tmp_path: Path) -> None:
    up._keep_login(tmp_path / "login.txt", "{}\n")
    assert (tmp_path / "login.txt").read_text().startswith("sign in as one of the users this database had")


@pytest.mark.parametrize("answer", ["", "done\n"])
def test_a_bootstrap_that_prints_no_login_is_told(tmp_path: Path, answer: str) -> None:
    with pytest.raises(Problem, match="printed no login"):
        up._keep_login(tmp_path / "login.txt", answer)


def test_a_secret_is_generated_once_and_read_by_its_owner_only(tmp_path: Path) -> None:
    key = private_files.secret(tmp_path / "secret-key")
    assert private_files.secret(tmp_path / "secret-key") == key
    assert len(key) >= 50
    assert stat.S_IMODE((tmp_path / "secret-key").stat().st_mode) == 0o600
