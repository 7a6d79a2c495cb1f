"""What a reader is, how readers are found, and how a file finds its reader."""

from __future__ import annotations

import functools
import hashlib
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers import archive
from experiments.readers.archive import Member
from experiments.workloads.timeline import Timeline

#: What a file can be: a model to capture, a step, a layer graph, a job trace, a request trace, substitution
#: rules, a list of operators, a tuning log or a list of a cluster's nodes.

#: Files that accompany data in an archive and are not data.
DOCUMENTS = ("LICENSE", "LICENCE", "README", "NOTICE", "COPYING", "CHANGELOG")

#: Bytes that a reader's ``recognizes`` sees.
HEAD = 65536


@dataclass(frozen=True)
class Reading:
    """What a reader got out of a file: the representation, what it assumed and what looks implausible."""

    value: Any
    assumed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reader:
    """How a format of files is told and read.

    - ``recognizes(head, name)`` decides by content, given the first ``HEAD`` bytes (after any decompression)
      and the file's name.
    - ``read(data, name, options)`` parses the whole.
    - ``describe`` is one line for the formats page.
    - ``merge`` makes one reading of the files of an archive, each with its bare name; ``None``: one file at a
      time.
    - ``join`` makes one reading of files that are tables of one whole, for formats that consist of several.
    - ``bundle`` reads a file that came in an archive together with those that it names.
    - ``side_file`` finds the file that belongs to one at a path, where ``options.extra`` names none.
    - ``timeline`` gives all that a profiler recorded, of which the value is one step; only ``inspect`` asks.
    - ``doubts`` gives warnings that need other files next to it; only ``inspect`` asks, since reading those
      takes time.
    - ``columns`` are the columns of jobs that its traces have beyond submission, GPUs and service.
    """

    format: str
    kind: str
    describe: str
    recognizes: Callable[[bytes, str], bool]
    read: Callable[[bytes, str, WorkloadOptions], Reading]
    merge: Callable[[Sequence[tuple[str, Reading]], str, WorkloadOptions], Reading] | None = None
    join: Callable[[Sequence[Member], str, WorkloadOptions], Reading] | None = None
    bundle: Callable[[Member, Sequence[Member], WorkloadOptions], Reading] | None = None
    side_file: Callable[[Path], Path | None] | None = None
    doubts: Callable[[Path, Reading], tuple[str, ...]] | None = None
    timeline: Callable[[bytes, str], Timeline] | None = None
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Opened:
    """A file that was read: its reading, its reader and the SHA-256 of its bytes as uploaded."""

    reading: Reading
    reader: Reader
    sha256: str


@functools.cache
def readers() -> Mapping[str, Reader]:
    """All readers by format, in alphabetical order; a format read twice raises."""
    package = importlib.import_module("experiments.readers")
    found: dict[str, Reader] = {}
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        reader = getattr(importlib.import_module(f"experiments.readers.{info.name}"), "READER", None)
        for entry in reader if isinstance(reader, tuple) else (reader,) if reader else ():
            if entry.format in found:
                raise RuntimeError(f"two readers for format {entry.format!r}")
            found[entry.format] = entry
    return MappingProxyType(found)


def reader_for(head: bytes, name: str, format: str = "auto") -> Reader:
    """The named reader, or the one whose ``recognizes`` says yes; two that say yes are told to the user."""
    known = readers()
    if format != "auto":
        if format not in known:
            raise BadInput(f"unknown format {format!r}", name, "one of " + ", ".join(known))
        return known[format]
    head = head.removeprefix(b"\xef\xbb\xbf")  # a byte-order mark says nothing about the format
    matches = [reader for reader in known.values() if reader.recognizes(head, name)]
    if not matches:
        raise BadInput("not a format that can be read", name, "one of " + ", ".join(known))
    if len(matches) > 1:
        names = ", ".join(reader.format for reader in matches)
        raise BadInput(f"could be {names}", name, "a format named explicitly")
    return matches[0]


def open_file(path: Path, format: str, options: WorkloadOptions, name: str | None = None) -> Opened:
    """Read ``path``. Compressed files and archives are unpacked within caps (``readers.archive``)."""
    shown = name or path.name
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise BadInput(error.strerror or str(error), shown, "a readable file") from None
    members = archive.members(raw, shown)
    if options.extra is None and len(members) == 1:
        side_file = reader_for(members[0].data[:HEAD], members[0].name, format).side_file
        found = side_file(path) if side_file else None
        options = replace(options, extra=str(found)) if found else options
    reader, reading = _read_members(members, shown, format, options)
    return Opened(reading, reader, hashlib.sha256(raw).hexdigest())


def doubts_beside(path: Path, format: str, value: Any) -> tuple[str, ...]:
    """What files next to ``path``, which was read as ``value`` of ``format``, make doubtful about it."""
    ask = readers()[format].doubts if format in readers() else None
    return ask(path, Reading(value)) if ask else ()


def looks_beside(format: str) -> bool:
    """Whether files next to one of ``format`` can make something doubtful about it."""
    return format in readers() and readers()[format].doubts is not None


def timelines_of(path: Path, format: str, name: str | None = None) -> tuple[Timeline, ...]:
    """What a profiler recorded of each process of which ``path`` holds a file; nothing for other formats."""
    reader = readers().get(format)
    if reader is None or reader.timeline is None:
        return ()
    members = _without_documents(archive.members(path.read_bytes(), name or path.name))
    return tuple(reader.timeline(member.data, member.name) for member in members)


def _without_documents(members: Sequence[Member]) -> Sequence[Member]:
    """Of several files those that are neither a license nor a read-me file."""
    return [member for member in members if member.stem.upper() not in DOCUMENTS] or members


def _find_bundle(
    members: Sequence[Member], format: str
) -> tuple[Reader, Callable[[WorkloadOptions], Reading]] | None:
    """The reader of the one file of an archive that may name others, and what reads it with them."""
    found = [
        (reader, reader.bundle, member)
        for reader in readers().values()
        if reader.bundle is not None and format in ("auto", reader.format)
        for member in members
        if reader.recognizes(member.data[:HEAD], member.name)
    ]
    if len(found) != 1:
        return None
    reader, bundle, main = found[0]
    others = [member for member in members if member is not main]
    return reader, lambda options: bundle(main, others, options)


def _read_members(
    members: Sequence[Member], name: str, format: str, options: WorkloadOptions
) -> tuple[Reader, Reading]:
    """One file as it is; several of one format merged by their reader, licenses and read-me files
    left out.
    """
    members = _without_documents(members) if len(members) > 1 else members
    if len(members) > 1 and (bundle := _find_bundle(members, format)):
        return bundle[0], bundle[1](options)
    found = [reader_for(member.data[:HEAD], member.name, format) for member in members]
    reader = found[0]
    if len(members) == 1:
        return reader, reader.read(members[0].data, members[0].name, options)
    for other, member in zip(found, members, strict=True):
        if other is not reader:
            raise BadInput(
                f"is {other.format}, {members[0].name} is {reader.format}", member.name, "one format"
            )
    if reader.join is not None:
        return reader, reader.join(members, name, options)
    if reader.merge is None:
        raise BadInput(f"holds {len(members)} files of format {reader.format}", name, "one file")
    whole = replace(options, limit=None, rate=None)
    readings = [(member.stem, reader.read(member.data, member.name, whole)) for member in members]
    return reader, reader.merge(readings, name, options)
