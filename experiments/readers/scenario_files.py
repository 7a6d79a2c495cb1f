"""The files that a scenario names: in the archive that it came in, next to it, or in the folder, archive or
file of ``options.extra``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers import archive
from experiments.readers.archive import Member
from experiments.readers.base import Reading

#: Reads a file with those that it names.
ReadWithFiles = Callable[["SideFiles", bytes, str, WorkloadOptions], Reading]


def side_folder(path: Path) -> Path | None:
    """The folder that a scenario lies in, where it lies under a name of its own.

    An upload lies under its hash next to those of others, which a scenario must not reach.
    """
    return path.parent if path.suffix else None


class SideFiles:
    """What is found under the names that a scenario has, with the SHA-256 of each that was read."""

    def __init__(self, extra: str | None, members: Sequence[Member] = ()) -> None:
        self._place = Path(extra) if extra else None
        self._in_archive = by_bare_names(members)
        self._packed: dict[str, bytes] | None = None
        self.digests: dict[str, str] = {}

    def read(self, name: str, where: str) -> bytes:
        """Return the file's bytes; ``BadInput`` says where it was looked for."""
        found = self.find(name)
        if found is None:
            place = (
                "next to the scenario, in one archive with it, or in options.extra"
                if self._place is None
                else "of that name there"
            )
            raise BadInput(f"{name!r:.200} is not found", where, f"a file {place}")
        self.digests[name] = hashlib.sha256(found).hexdigest()
        return found

    def find(self, name: str) -> bytes | None:
        """Return the file's bytes, or ``None`` where there is none."""
        found = self._in_archive.get(PurePosixPath(name).name)
        if found is not None or self._place is None:
            return found
        if self._place.is_dir():
            return _bytes_of(self._place / name)
        members = self._members(self._place)
        return next(iter(members.values())) if len(members) == 1 else members.get(PurePosixPath(name).name)

    def _members(self, place: Path) -> dict[str, bytes]:
        """Files of an archive by their bare names."""
        if self._packed is None:
            raw = _bytes_of(place)
            if raw is None:
                raise BadInput("is no readable file", place.name, "the files that the scenario names")
            self._packed = by_bare_names(archive.members(raw, place.name))
        return self._packed


def read_alone(read: ReadWithFiles) -> Callable[[bytes, str, WorkloadOptions], Reading]:
    """Return ``Reader.read`` of a format whose files name others."""
    return lambda data, name, options: read(SideFiles(options.extra), data, name, options)


def read_bundle(read: ReadWithFiles) -> Callable[[Member, Sequence[Member], WorkloadOptions], Reading]:
    """Return ``Reader.bundle`` of such a format."""
    return lambda main, others, options: read(SideFiles(options.extra, others), main.data, main.name, options)


def by_bare_names(members: Sequence[Member]) -> dict[str, bytes]:
    """Return the files of an archive by their names without folders."""
    return {PurePosixPath(one.name.rpartition(": ")[2]).name: one.data for one in members}


def _bytes_of(path: Path) -> bytes | None:
    try:
        if path.stat().st_size > archive.MAX_BYTES:
            raise BadInput(f"{path.stat().st_size} bytes", path.name, f"at most {archive.MAX_BYTES}")
        return path.read_bytes() if path.is_file() else None
    except (OSError, ValueError):
        return None
