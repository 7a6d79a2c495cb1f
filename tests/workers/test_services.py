"""The embedded servers: a folder goes through a first start, a crash and a second start."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from workers.accounts import Account, account_for
from workers.embedded import Postgres, ServiceError, Valkey, explain
from workers.services import free_port, launch, running, wait_until_ready


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A folder that the account of the server may enter, as `var/` is."""
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    yield tmp_path


def postgres_in(home: Path) -> Postgres:
    return Postgres(home / "postgres", free_port(), durable=False)


def remember(url: str, word: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS words (word text)")
        connection.execute("INSERT INTO words VALUES (%s)", [word])


def remembered(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute("SELECT word FROM words")]


def ask_valkey(valkey: Valkey, *commands: str) -> list[str]:
    with socket.create_connection(("127.0.0.1", valkey.port), timeout=5) as connection:
        answers = []
        for command in commands:
            connection.sendall(f"{command}\r\n".encode())
            answers.append(connection.recv(1024).decode().strip())
        return answers


def test_a_second_start_finds_the_data_of_the_first(home: Path) -> None:
    with running(postgres_in(home), home / "log") as process:
        first = postgres_in(home)
        remember(f"{Postgres(first.home, port_of(first)).url}", "kept")
    assert process.returncode == 0
    again = postgres_in(home)
    with running(again, home / "log"):
        assert remembered(again.url) == ["kept"]


def port_of(postgres: Postgres) -> int:
    return int((postgres.data / "postmaster.pid").read_text().splitlines()[3])


def test_postgres_wants_the_generated_password_which_only_its_owner_can_read(home: Path) -> None:
    postgres = postgres_in(home)
    with running(postgres, home / "log"):
        wrong = postgres.url.replace(":", ":x", 2).replace("postgresql:x", "postgresql:")
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(wrong)
    assert stat.S_IMODE((postgres.home / "password").stat().st_mode) == 0o600
    assert stat.S_IMODE(postgres.data.stat().st_mode) == 0o700


def test_a_server_that_outlived_its_parent_is_ended_and_its_data_kept(home: Path) -> None:
    orphan = postgres_in(home)
    orphan.prepare()
    process = launch(orphan, home / "log")
    wait_until_ready(orphan, process, home / "log")
    remember(orphan.url, "before the crash")

    heir = postgres_in(home)
    with running(heir, home / "log"):
        assert process.wait(1) == 0
        assert remembered(heir.url) == ["before the crash"]


def test_a_pid_file_whose_number_belongs_to_another_program_is_no_obstacle(home: Path) -> None:
    with running(postgres_in(home), home / "log"):
        pass
    postgres = postgres_in(home)
    innocent = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        stale = [str(innocent.pid), str(postgres.data), "0", "1", "", "127.0.0.1", "", "ready"]
        (postgres.data / "postmaster.pid").write_text("\n".join(stale))
        with running(postgres, home / "log"):
            assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


def test_a_half_made_cluster_is_thrown_away(home: Path) -> None:
    postgres = postgres_in(home)
    unfinished = postgres.home / "data.unfinished"
    unfinished.mkdir(parents=True)
    (unfinished / "PG_VERSION").write_text("18\n")
    with running(postgres, home / "log"):
        assert not unfinished.exists()


def test_data_of_another_major_version_is_refused_before_anything_is_touched(home: Path) -> None:
    postgres = postgres_in(home)
    postgres.data.mkdir(parents=True)
    (postgres.data / "PG_VERSION").write_text("17\n")
    with pytest.raises(ServiceError, match=r"made by PostgreSQL 17, the installed server is 18\."):
        postgres.prepare()


def test_a_taken_port_is_named_in_the_error(home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        valkey = Valkey(home / "valkey", taken.getsockname()[1])
        with (
            pytest.raises(ServiceError, match=r"valkey ended with exit code 1"),
            running(valkey, home / "log"),
        ):
            pass


def test_a_full_disk_is_called_by_its_name() -> None:
    error = explain("postgres ended", 'FATAL: could not write file "pg_wal": No space left on device')
    assert str(error) == "the disk is full: postgres ended"
    assert error.remedy == "free some space and start again"


def test_valkey_answers_only_with_its_password_and_ends_on_request(home: Path) -> None:
    valkey = Valkey(home / "valkey", free_port())
    with running(valkey, home / "log") as process:
        password = (valkey.home / "password").read_text()
        assert ask_valkey(valkey, "PING") == ["-NOAUTH Authentication required."]
        assert ask_valkey(valkey, f"AUTH {password}", "PING") == ["+OK", "+PONG"]
        shown = Path(f"/proc/{process.pid}/cmdline")
        if shown.exists():
            assert password.encode() not in shown.read_bytes()
    assert process.returncode == 0


def test_a_second_valkey_in_the_same_folder_ends_the_leftover(home: Path) -> None:
    orphan = Valkey(home / "valkey", free_port())
    orphan.prepare()
    process = launch(orphan, home / "log")
    wait_until_ready(orphan, process, home / "log")
    with running(Valkey(home / "valkey", free_port()), home / "log"):
        assert process.wait(1) == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="runs as an ordinary user")
def test_an_ordinary_user_runs_postgres_under_the_same_account(home: Path) -> None:
    assert account_for(home, needs=()) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hand a server to another account")
class TestAsRoot:
    def test_postgres_runs_under_an_ordinary_account(self, home: Path) -> None:
        postgres = postgres_in(home)
        with running(postgres, home / "log") as process:
            assert postgres.account is not None
            assert owner_of(process) == postgres.account.uid != 0

    def test_a_folder_closed_to_others_stays_closed_and_still_works(self, home: Path) -> None:
        closed = home / "closed"
        closed.mkdir(mode=0o700)
        postgres = postgres_in(closed)
        with running(postgres, home / "log") as process:
            assert postgres.account is not None
            assert postgres.account.passes_any_folder
            assert owner_of(process) == postgres.account.uid != 0
            remember(postgres.url, "kept")
        assert stat.S_IMODE(closed.stat().st_mode) == 0o700

    def test_without_setpriv_a_closed_folder_is_one_clear_error(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        closed = home / "closed"
        closed.mkdir(mode=0o700)
        monkeypatch.setenv("PATH", str(home))
        # `test` is looked up before PATH is emptied for setpriv only.
        (home / "test").symlink_to("/usr/bin/test")
        with pytest.raises(ServiceError, match="PostgreSQL refuses to run as root") as caught:
            postgres_in(closed).prepare()
        assert caught.value.remedy.startswith("run as an ordinary user")

    def test_a_file_made_as_root_is_handed_over_with_its_folder(self, home: Path) -> None:
        folder = home / "data"
        folder.mkdir()
        (folder / "file").touch()
        Account("nobody", 65534, 65534).take(folder)
        assert {path.stat().st_uid for path in (folder, folder / "file")} == {65534}


def owner_of(process: subprocess.Popen[bytes]) -> int:
    return Path(f"/proc/{process.pid}").stat().st_uid


def test_postgres_is_stopped_by_its_fast_shutdown() -> None:
    # SIGTERM would wait for every client to leave.
    assert Postgres(Path("/anywhere"), 5432).stop_signal is signal.SIGINT
