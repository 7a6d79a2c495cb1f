"""What a reader is, how readers are found, and how a file finds its reader."""

from __future__ import annotations

import functools
import hashlib
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from experiments.core.errors import BadInput
from experiments.core.spec import WorkloadOptions

#: What a file can be: a model to capture, a step, a layer graph, a job trace or a request trace.
KINDS = ("model", "step", "layers", "jobs", "requests")

#: Bytes that a reader's ``recognises`` sees.
HEAD = 65536


@dataclass(frozen=True)
class Reading:
    """What a reader got out of a file: the representation, what it assumed and what looks implausible."""

    value: Any
    assumed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reader:
    """``recognises(head, name)`` decides by content, given the first ``HEAD`` bytes (after any decompression) and the
    file's name; ``read(data, name, options)`` parses the whole. ``describe`` is one line for the formats page.
    """

    format: str
    kind: str
    describe: str
    recognises: Callable[[bytes, str], bool]
    read: Callable[[bytes, str, WorkloadOptions], Reading]


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
    """The named reader, or the one whose ``recognises`` says yes; two that say yes are told to the user."""
    known = readers()
    if format != "auto":
        if format not in known:
            raise BadInput(f"unknown format {format!r}", name, "one of " + ", ".join(known))
        return known[format]
    matches = [reader for reader in known.values() if reader.recognises(head, name)]
    if not matches:
        raise BadInput("not a format that can be read", name, "one of " + ", ".join(known))
    if len(matches) > 1:
        names = ", ".join(reader.format for reader in matches)
        raise BadInput(f"could be {names}", name, "a format named explicitly")
    return matches[0]


def open_file(path: Path, format: str, options: WorkloadOptions, name: str | None = None) -> Opened:
    """Read ``path``. Compressed files and archives are unpacked within caps (``readers.archive``)."""
    from experiments.readers import archive

    shown = name or path.name
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise BadInput(error.strerror or str(error), shown, "a readable file") from None
    data, inner = archive.unpack(raw, shown)
    reader = reader_for(data[:HEAD], inner, format)
    return Opened(reader.read(data, inner, options), reader, hashlib.sha256(raw).hexdigest())
