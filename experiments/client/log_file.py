"""The log of an own run on this host's disk: written before anything is sent, kept until the server has all.

Every line goes to the file at once, so a program that is killed loses no point that it logged. Who writes
holds a lock on the file; a file that nobody holds was left by a program that is gone.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any
from uuid import UUID

#: Of a log that is sent at once (bytes); a longer line is sent alone.
LARGEST_PART = 2**20
SUFFIX = ".ndjson"
DIED = {"state": "failed", "reason": "the program ended without a word"}


def default_folder() -> Path:
    """LAB_SPOOL, else where programs keep data of the user."""
    told = os.environ.get("LAB_SPOOL")
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(told or f"{data}/mlsys-policy-lab/logs").expanduser()


@dataclass
class LogFile:
    """A log that this process holds."""

    path: Path
    descriptor: int

    @classmethod
    def create(cls, folder: Path, run: UUID, server: str, project: str) -> LogFile:
        """An empty log, with a file that says for which server and project it is."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / f"{run}{SUFFIX}"
        path.with_suffix(".json").write_text(json.dumps({"server": server, "project": project}))
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return cls(path, descriptor)

    @classmethod
    def take(cls, path: Path) -> LogFile | None:
        """A log that a program left, ended where it had not; ``None`` while its program lives."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        os.ftruncate(descriptor, whole)  # the last line was cut as the program died
        found = cls(path, descriptor)
        last = content[:whole].rstrip(b"\n").rpartition(b"\n")[2]
        if whole and not last.startswith(b'{"end"'):
            found.write({"end": {**DIED, "at": path.stat().st_mtime}})
        return found

    @property
    def run(self) -> UUID:
        return UUID(self.path.name.removesuffix(SUFFIX))

    @property
    def files(self) -> Path:
        """The folder of files that are to be sent with it."""
        return self.path.with_suffix(".files")

    def header(self) -> Mapping[str, str]:
        """For which server and project it is."""
        try:
            found: dict[str, str] = json.loads(self.path.with_suffix(".json").read_text())
        except (OSError, ValueError):
            return {}
        return found

    def write(self, record: Any) -> None:
        """Put a line at the end, in one write of the system."""
        text = json.dumps(record, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        line = text.encode(errors="replace") + b"\n"
        os.write(self.descriptor, line)

    def part(self, offset: int) -> bytes:
        """Whole lines from ``offset`` on, as many as are sent at once; empty at the end."""
        size = LARGEST_PART
        while True:
            content = os.pread(self.descriptor, size, offset)
            end = content.rfind(b"\n") + 1
            if end or len(content) < size:
                return content[:end]
            size *= 2

    def add_file(self, source: Path) -> None:
        """Copy a file to be sent with the log, next to those of its name; it is seen once it is whole."""
        self.files.mkdir(exist_ok=True)
        whole = self.path.with_suffix(".part")
        shutil.copy(source, whole)
        numbered = (f"{source.stem}-{number}{source.suffix}" for number in count(2))
        name = next(one for one in chain([source.name], numbered) if not (self.files / one).exists())
        whole.replace(self.files / name)

    def close(self) -> None:
        os.close(self.descriptor)

    def remove(self) -> None:
        """The server has all of it."""
        for path in (
            *self.files.glob("*"),
            self.path.with_suffix(".json"),
            self.path.with_suffix(".part"),
            self.path,
        ):
            path.unlink(missing_ok=True)
        if self.files.is_dir():
            self.files.rmdir()


def left_behind(folder: Path) -> Iterator[LogFile]:
    """The logs in ``folder`` of programs that are gone, the oldest first."""
    paths = sorted(folder.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime)
    for path in paths:
        found = LogFile.take(path)
        if found is not None:
            yield found
