"""`./lab up`: install, start the servers, bring the database up to date, start the programs, watch them."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from labtools import installation, listening, preflight, private_files, programs, record
from labtools.layout import Layout
from labtools.problems import FULL_DISK_REMEDY, Interrupted, Problem, is_about_a_full_disk
from labtools.supervisor import Supervisor


def up(layout: Layout, options: argparse.Namespace, arguments: Sequence[str]) -> int:
    layout.make()
    if not installation.is_inside(layout):
        # Asked before minutes of installing as well: better to be told at once.
        with record.claim(layout):
            preflight.require_free_port(options.port)
    installation.ensure(layout, installation.RUNTIME, options.torch_index)
    installation.continue_inside(layout, arguments)
    with record.claim(layout):
        preflight.require_free_port(options.port)
        return _start_and_watch(layout, options)


def _start_and_watch(layout: Layout, options: argparse.Namespace) -> int:
    began = time.monotonic()
    if os.geteuid() == 0:
        preflight.require_walls(options.unsafe or os.environ.get("LAB_UNSAFE") == "1")

    def remember(pids: dict[str, int], troubles: dict[str, str]) -> None:
        record.write(layout, options.port, pids, troubles)

    remember({}, {})
    with Supervisor(changed=remember) as supervisor:
        at = programs.endpoints(layout)
        for server in at.servers:
            supervisor.start(server)
        supervisor.wait_until_ready(*[server.name for server in at.servers])
        shared = programs.environment(layout, at, options.unsafe)
        if options.listen:
            shared |= listening.settings(layout, options.listen, at.database_url)
        _prepare(layout, shared, layout.login(at.database_is_embedded), options.demo)
        applications = programs.applications(layout, shared, options.port, options.workers)
        if options.listen:
            applications += listening.doors(layout, shared, options.listen)
        for application in applications:
            supervisor.start(application)
        supervisor.wait_until_ready(*[application.name for application in applications])
        _announce(options.port, layout.login(at.database_is_embedded), time.monotonic() - began)
        if options.listen:
            print(f"Other hosts join at {options.listen.url} (Hosts, Add a host)", flush=True)
        try:
            supervisor.watch()
        except Interrupted:
            print("\nStopping web, worker, beat and the servers", flush=True)
            supervisor.stop_all()
    print("Stopped; the data is kept in", layout.var, flush=True)
    return 0


def _prepare(layout: Layout, shared: Mapping[str, str], login: Path, demo: bool) -> None:
    """The database's tables, static files, evidence, and on the first start the administrator and demo."""
    manage(layout, shared, "migrate", "--no-input")
    _collect_static_files(layout, shared)
    _load_evidence(layout, shared)
    if login.exists():
        return
    print("First start: creating the administrator" + (" and the demo project" if demo else ""), flush=True)
    answer = manage(layout, shared, "bootstrap_demo", *([] if demo else ["--no-demo"]))
    _keep_login(login, answer)


def _load_evidence(layout: Layout, shared: Mapping[str, str]) -> None:
    """What ships in docs/evidence, on the first start and whenever a file of it changed."""
    files = sorted((layout.root / "docs" / "evidence").glob("*.json"))
    fingerprint = hashlib.sha256(os.environ.get("DATABASE_URL", "").encode())
    for file in files:
        fingerprint.update(file.read_bytes())
    stamp = layout.var / "evidence.sha256"
    if stamp.exists() and stamp.read_text() == fingerprint.hexdigest():
        return
    manage(layout, shared, "import_evidence")
    stamp.write_text(fingerprint.hexdigest())


def _collect_static_files(layout: Layout, shared: Mapping[str, str]) -> None:
    """Only when a file or a package changed: compressing the plot library takes seconds."""
    stamp = layout.var / "static.sha256"
    fingerprint = _fingerprint_of_static_files(layout)
    if stamp.exists() and stamp.read_text() == fingerprint and (layout.var / "static").is_dir():
        return
    manage(layout, shared, "collectstatic", "--no-input")
    stamp.write_text(fingerprint)


def _fingerprint_of_static_files(layout: Layout) -> str:
    digest = hashlib.sha256((layout.root / "requirements.txt").read_bytes())
    for path in sorted((layout.root / "webapp").glob("**/static/**/*")):
        if path.is_file():
            details = path.stat()
            digest.update(
                f"{path.relative_to(layout.root)} {details.st_size} {details.st_mtime_ns}\n".encode()
            )
    return digest.hexdigest()


def manage(layout: Layout, shared: Mapping[str, str], *command: str) -> str:
    """Run a management command; what it printed on stdout. Its errors go to var/log/manage.log."""
    ran = subprocess.run(
        [layout.python, "manage.py", *command],
        cwd=layout.root,
        env=shared,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        # Ctrl-C is ours to handle; the supervisor ends whatever runs then.
        start_new_session=True,
    )
    log = layout.logs / "manage.log"
    with log.open("a") as file:
        file.write(f"$ manage.py {' '.join(command)}\n{ran.stderr}")
    if ran.returncode:
        lines = ran.stderr.strip().splitlines() or ["it gave no reason"]
        full = is_about_a_full_disk(ran.stderr)
        raise Problem(
            f"manage.py {command[0]} failed: {lines[-1]}", FULL_DISK_REMEDY if full else f"read {log}"
        )
    return ran.stdout


def _keep_login(login: Path, answer: str) -> None:
    """Store the login that `bootstrap_demo` printed as its last line, so that every start can show it.

    It prints an empty object where the database had users before, whose passwords nobody knows.
    """
    try:
        created = json.loads(answer.strip().splitlines()[-1])
    except (IndexError, json.JSONDecodeError) as error:
        raise Problem(
            "manage.py bootstrap_demo printed no login", "read docs/operations.md, A lost password"
        ) from error
    text = "sign in as one of the users this database had before (docs/operations.md, A lost password)\n"
    if created:
        text = f"login     {created['username']}\npassword  {created['password']}\n"
    private_files.write(login, text)


def _announce(port: int, login: Path, seconds: float) -> None:
    print(f"\nMLSys Policy Lab is running at http://127.0.0.1:{port}  (started in {seconds:.1f} s)")
    for line in login.read_text().splitlines():
        print(f"  {line}")
    print(f"  (from {login})\nCtrl-C or ./lab stop ends it and keeps the data.", flush=True)
