"""Compressed files and archives: gzip, tar, tar.gz and zip, unpacked in memory within caps on bytes, ratio,
depth, count.

Nothing is ever written to disk, so names inside an archive are labels only. Zip files that are a format of
their own (``.npz`` steps, ``.pt2`` programs, torch checkpoints) pass through unopened.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from experiments.core.errors import BadInput

MAX_BYTES = 1 << 29
MAX_RATIO = 200
MAX_DEPTH = 3
MAX_MEMBERS = 1000

#: Below this many unpacked bytes a high ratio is harmless (an all-equal column compresses well).
RATIO_FROM = 1 << 24

_CHUNK = 1 << 20
_ZIP_FORMATS = (".npy", "data.pkl", "archive_format", "serialized_exported_program.json")
_BROKEN = (
    EOFError,
    OSError,
    RuntimeError,  # zipfile: encrypted member
    NotImplementedError,  # zipfile: unknown compression
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True)
class Member:
    """One plain file and its bytes; ``name`` is ``archive: path inside`` or the file's own name."""

    name: str
    data: bytes

    @property
    def stem(self) -> str:
        """The bare name: ``cluster01`` of ``raw-traces.tar: traces/cluster01.csv``."""
        return PurePosixPath(self.name.rsplit(": ", 1)[-1]).stem


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass
class _Budget:
    """What is left of the caps of one upload of ``packed`` bytes."""

    name: str
    packed: int
    bytes: int = 0
    members: int = 0

    def take(self, size: int, place: str) -> None:
        self.bytes += size
        if self.bytes > MAX_BYTES:
            raise BadInput(f"unpacks to more than {MAX_BYTES} bytes", place, "a smaller file")
        if self.bytes > max(RATIO_FROM, MAX_RATIO * self.packed):
            raise BadInput(f"unpacks to more than {MAX_RATIO} times its size", place, "no decompression bomb")

    def member(self) -> None:
        self.members += 1
        if self.members > MAX_MEMBERS:
            raise BadInput("too many files in the archive", self.name, f"at most {MAX_MEMBERS}")


def unpack(raw: bytes, name: str) -> tuple[bytes, str]:
    """The one plain file in ``raw`` and its name, for what must be a single file."""
    found = members(raw, name)
    if len(found) > 1:
        raise BadInput(f"holds {len(found)} files", name, "one file")
    return found[0].data, found[0].name


def members(raw: bytes, name: str) -> tuple[Member, ...]:
    """The plain files in ``raw``: itself when it is not packed, else all members in the order of their names.

    ``BadInput`` names the member that is broken, too large or not a plain file.
    """
    if len(raw) > MAX_BYTES:
        raise BadInput(f"{len(raw)} bytes", name, f"at most {MAX_BYTES}")
    found = tuple(_open(Member(name, raw), 0, _Budget(name, len(raw))))
    if not found:
        raise BadInput("the archive holds no file", name, "at least one file")
    return tuple(sorted(found, key=lambda member: member.name)) if len(found) > 1 else found


def _open(member: Member, depth: int, budget: _Budget) -> Iterator[Member]:
    if member.data[:4] == b"PK\x03\x04":
        _check_promises(member, budget)
    opener = _opener(member.data)
    if opener is None:
        yield member
        return
    if depth == MAX_DEPTH:
        raise BadInput("packed inside packed files", member.name, f"at most {MAX_DEPTH} layers")
    try:
        for inner in opener(member, budget):
            yield from _open(inner, depth + 1, budget)
    except _BROKEN as error:
        raise BadInput(f"broken archive: {error}", member.name, "a complete gzip, tar or zip file") from None


def _opener(data: bytes) -> Callable[[Member, _Budget], Iterator[Member]] | None:
    """What unpacks ``data``, or ``None`` for a plain file."""
    if data[:2] == b"\x1f\x8b":
        return _gunzip
    if data[257:262] == b"ustar":
        return _tar_members
    if data[:4] in (b"PK\x03\x04", b"PK\x05\x06") and not _is_zip_format(data):
        return _zip_members
    return None


def _is_zip_format(data: bytes) -> bool:
    """A step, an exported program or a checkpoint: one file to its reader, though zip outside."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return any(name.endswith(_ZIP_FORMATS) for name in archive.namelist())
    except zipfile.BadZipFile:
        return data[30:40] == b"header.npy"


def _read(stream: _Stream, budget: _Budget, place: str) -> bytes:
    """All of ``stream``, stopping as soon as the budget is spent."""
    parts = []
    while part := stream.read(_CHUNK):
        budget.take(len(part), place)
        parts.append(part)
    return b"".join(parts)


def _gunzip(member: Member, budget: _Budget) -> Iterator[Member]:
    with gzip.GzipFile(fileobj=io.BytesIO(member.data)) as stream:
        data = _read(stream, budget, member.name)
    yield Member(_without(member.name, (".gz", ".tgz")), data)


def _without(name: str, endings: tuple[str, ...]) -> str:
    ending = next((e for e in endings if name.lower().endswith(e)), "")
    return name[: len(name) - len(ending)]


def _check_promises(member: Member, budget: _Budget) -> None:
    """A zip that passes through unopened is held to what its directory says; its reader gets no more than
    that.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(member.data)) as archive:
            promised = sum(info.file_size for info in archive.infolist())
    except zipfile.BadZipFile:
        return  # whoever opens it says what is broken
    _Budget(budget.name, budget.packed).take(promised, member.name)


def _label(member: Member, path: str) -> str:
    """A member's name for messages: no surrogates, no control characters, no endless names."""
    plain = path.encode("utf-8", "replace").decode("utf-8")
    return f"{member.name}: " + "".join(c if c.isprintable() else "?" for c in plain)[:200]


def _is_junk(path: str) -> bool:
    """Left by the packing system, not by the user: resource forks and hidden folders' files."""
    name = PurePosixPath(path).name
    return name.startswith("._") or name == ".DS_Store" or path.startswith("__MACOSX/")


def _tar_members(member: Member, budget: _Budget) -> Iterator[Member]:
    with tarfile.open(fileobj=io.BytesIO(member.data), mode="r:") as archive:
        for info in archive:
            budget.member()
            place = _label(member, info.name)
            if info.isdir() or _is_junk(info.name):
                continue
            if not info.isreg() or info.issparse():
                raise BadInput("is a link, a device or a sparse file", place, "plain files only")
            budget.take(info.size, place)
            stream = archive.extractfile(info)
            data = stream.read() if stream else b""
            if len(data) != info.size:
                raise BadInput("broken archive: unexpected end of data", place, "a complete tar file")
            yield Member(place, data)


def _zip_members(member: Member, budget: _Budget) -> Iterator[Member]:
    with zipfile.ZipFile(io.BytesIO(member.data)) as archive:
        for info in archive.infolist():
            budget.member()
            if info.is_dir() or _is_junk(info.filename):
                continue
            place = _label(member, info.filename)
            with archive.open(info) as stream:
                yield Member(place, _read(stream, budget, place))
