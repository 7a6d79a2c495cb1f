"""`./lab backup` and `./lab restore`: the database and the files in one archive, while the lab runs.

The archive is a tar of `about.json` (revision and migrations), `database.dump` (pg_dump) and `files/`. The
database is read first: files only come while the lab runs, and go at the earliest a day after their last row.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from labtools import record, up
from labtools.layout import Layout
from labtools.preflight import without_password
from labtools.problems import FULL_DISK_REMEDY, Problem, is_about_a_full_disk

FORMAT = "mlsys-lab-backup-1"
#: What belongs to the server's roles, not to the lab: of hosts that joined, `migrate` makes it anew.
NOT_KEPT = ("--no-owner", "--no-acl", "--no-policies")
#: Written aside or not whole yet.
UNFINISHED = ("unfinished", ".part")
MIGRATIONS = "SELECT app || '.' || name FROM django_migrations ORDER BY 1"


def backup(layout: Layout, target: Path) -> int:
    """Write `target`; whether a lab runs or not, nothing of it changes."""
    if target.exists():
        raise Problem(f"{target} exists", "choose another name, or remove it first")
    with _database(layout) as url:
        kept, size = write(url, layout.var / "files", target)
    print(f"Kept the database and {kept} files in {target} ({size / 2**20:.1f} MiB)")
    return 0


def restore(layout: Layout, source: Path, replace: bool) -> int:
    """Make this checkout's lab the one in `source`, and bring its tables up to date."""
    layout.make()
    with record.claim(layout), _database(layout) as url:
        about, kept = read(url, layout.var / "files", source, replace)
        _migrate(layout, url)
    print(f"Restored the lab of {about['made_at']} with {kept} files; start it with ./lab up")
    return 0


def write(url: str, files: Path, target: Path) -> tuple[int, int]:
    """Write the database at `url` and `files` to `target`; return the number of files and the bytes."""
    aside = target.with_name(f".{target.name}.part")
    try:
        with os.fdopen(os.open(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
            kept = _write_archive(url, files, stream)
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
    return kept, target.stat().st_size


def read(url: str, files: Path, source: Path, replace: bool) -> tuple[dict[str, str], int]:
    """Put what `source` holds into the database at `url` and into `files`; return what it says of itself."""
    try:
        with tarfile.open(source) as archive, tempfile.TemporaryDirectory() as folder:
            about = _read_about(archive, source)
            _require_known_migrations(url, about, replace)
            dump = Path(folder) / "database.dump"
            with dump.open("wb") as stream:
                _copy(archive, "database.dump", stream)
            kept = sum(_put_file(archive, member, files) for member in archive if _is_file_of_lab(member))
            _empty(url)
            _run(url, "pg_restore", "--single-transaction", *NOT_KEPT, "--dbname", url, str(dump))
    except (tarfile.TarError, EOFError) as error:
        raise Problem(f"{source} is no whole backup: {error}", "choose another one") from error
    return about, kept


def _write_archive(url: str, files: Path, stream: IO[bytes]) -> int:
    kept = 0
    with tarfile.open(fileobj=stream, mode="w") as archive, tempfile.TemporaryDirectory() as folder:
        about = Path(folder) / "about.json"
        about.write_text(json.dumps(_about(url), indent=1))
        archive.add(about, "about.json")
        dump = Path(folder) / "database.dump"
        _run(url, "pg_dump", "--format=custom", *NOT_KEPT, "--file", str(dump), url)
        archive.add(dump, "database.dump")
        for path in sorted(files.rglob("*")) if files.exists() else ():
            name = path.relative_to(files)
            if path.is_file() and not (name.parts[0] in UNFINISHED or path.name.endswith(UNFINISHED)):
                archive.add(path, f"files/{name}", recursive=False)
                kept += 1
    return kept


def _about(url: str) -> dict[str, object]:
    made = datetime.now(UTC).isoformat(timespec="seconds")
    return {"format": FORMAT, "made_at": made, "migrations": _migrations_in(url)}


def _read_about(archive: tarfile.TarFile, source: Path) -> dict[str, str]:
    first = archive.next()
    held = archive.extractfile(first) if first and first.name == "about.json" and first.isfile() else None
    try:
        about = json.loads(held.read(2**20)) if held else {}
    except ValueError:
        about = {}
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise Problem(f"{source} is no backup of a lab", "choose a file that ./lab backup wrote")
    return about


def _require_known_migrations(url: str, about: dict[str, str], replace: bool) -> None:
    """Refuse a backup of a later revision, and to write over a lab that is in use."""
    webapp = Path(__file__).resolve().parents[1] / "webapp"
    known = {f"{path.parents[1].name}.{path.stem}" for path in webapp.glob("*/migrations/0*.py")}
    ours = {name.partition(".")[0] for name in known}
    unknown = [name for name in about["migrations"] if name.partition(".")[0] in ours and name not in known]
    if unknown:
        raise Problem(
            f"the backup is of a later revision: {unknown[0]} is unknown", "update this checkout first"
        )
    if _migrations_in(url) and not replace:
        raise Problem("this lab has data", "./lab restore --replace FILE, after ./lab backup of what is here")


def _empty(url: str) -> None:
    """Drop all tables: those of a later revision too, which the dump does not know."""
    import psycopg

    with psycopg.connect(url, connect_timeout=5) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")


def _migrations_in(url: str) -> list[str]:
    import psycopg

    with psycopg.connect(url, connect_timeout=5) as connection:
        table = connection.execute("SELECT to_regclass('django_migrations')").fetchone()
        rows = connection.execute(MIGRATIONS).fetchall() if table and table[0] else []
    return [row[0] for row in rows]


def _is_file_of_lab(member: tarfile.TarInfo) -> bool:
    return member.isfile() and member.name.startswith("files/")


def _put_file(archive: tarfile.TarFile, member: tarfile.TarInfo, files: Path) -> int:
    """Write one file, whole or not at all; what is named by its hash must have it."""
    name = Path(member.name).relative_to("files")
    if ".." in name.parts:
        raise Problem(f"the backup names a file outside: {member.name}", "it was not made by ./lab backup")
    path = files / name
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.part")
    with aside.open("wb") as stream:
        digest = _copy(archive, member.name, stream)
    if len(path.name) == len(digest) and path.name != digest:
        aside.unlink()
        raise Problem(f"{member.name} is damaged in the backup", "choose another one")
    aside.replace(path)
    return 1


def _copy(archive: tarfile.TarFile, name: str, stream: IO[bytes]) -> str:
    """Copy one member out; return the SHA-256 of its bytes."""
    held, digest = archive.extractfile(name), hashlib.sha256()
    if held is None:
        raise tarfile.TarError(f"{name} is missing")
    while part := held.read(2**20):
        digest.update(part)
        stream.write(part)
    return digest.hexdigest()


@contextmanager
def _database(layout: Layout) -> Iterator[str]:
    """Yield the address of this checkout's database, started for as long as need be."""
    from workers import embedded, services

    given = os.environ.get("DATABASE_URL")
    pid_file = layout.var / "postgres" / "data" / "postmaster.pid"
    if given:
        yield given
        return
    runs = record.is_held(layout) and record.read_record(layout) is not None and pid_file.exists()
    port = int(pid_file.read_text().splitlines()[3]) if runs else services.free_port()
    server = embedded.Postgres(layout.var / "postgres", port)
    log = layout.logs / "postgres.log"
    with nullcontext() if runs else services.running(server, log):
        yield server.url


def _run(url: str, program: str, *arguments: str) -> None:
    """Run a program of PostgreSQL's; its password stands in no command line and no message."""
    from workers.embedded import postgres_binary

    clean = [without_password(one) if one == url else one for one in arguments]
    told = os.environ | {"PGPASSWORD": _password(url)}
    ran = subprocess.run([postgres_binary(program), *clean], env=told, capture_output=True, text=True)
    if ran.returncode:
        lines = ran.stderr.strip().splitlines() or ["it gave no reason"]
        full = is_about_a_full_disk(ran.stderr)
        raise Problem(f"{program} failed: {lines[0]}", FULL_DISK_REMEDY if full else "nothing was lost")


def _password(url: str) -> str:
    from urllib.parse import unquote, urlsplit

    return unquote(urlsplit(url).password or "")


def _migrate(layout: Layout, url: str) -> None:
    shared = os.environ | {
        "DATABASE_URL": url,
        "REDIS_URL": "redis://127.0.0.1:1/0",
        "SECRET_KEY": "only for this command",
        "LAB_VAR": str(layout.var),
        "DJANGO_SETTINGS_MODULE": "webapp.settings.local",
    }
    up.manage(layout, shared, "migrate", "--no-input")
