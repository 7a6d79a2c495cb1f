"""Files of runs of an MLflow store: found where the store says, below folders that may be read, sent once.

A store may come from anywhere, so what it says is not followed out of its own folder and the one that was
named, neither by a path nor by a link.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import UUID

from experiments.client.server import Refused, Server
from labtools.problems import Problem

#: Of a run that has more, the first by name are sent; a larger file (bytes) is not.
MOST_FILES, LARGEST_FILE = 200, 256 * 2**20
LONGEST_NAME = 200
SERVED = "mlflow-artifacts"


class Unreached(Exception):
    """Why files are not read, in words."""


@dataclass(frozen=True)
class FileFolders:
    """Folders that files are read from; ``served`` is the one that ``mlflow-artifacts:/`` stands for."""

    allowed: tuple[Path, ...]
    served: Path | None

    @classmethod
    def of(cls, store: Path | None, named: Path | None) -> FileFolders:
        """Those of a store that is the file or folder ``store``, or a database elsewhere (``None``)."""
        if named is not None and not named.is_dir():
            raise Problem(f"there is no folder {named}", "--artifacts names where the store's files are")
        own = () if store is None else (store.resolve() if store.is_dir() else store.resolve().parent,)
        allowed = (*own, named.resolve()) if named else own
        return cls(allowed, named or (own[0] / "mlartifacts" if own else None))

    def locate(self, uri: str) -> Path:
        """The folder that the store calls ``uri``; ``Unreached`` where it is none that may be read."""
        place = self._place(uri).resolve()
        if not any(place.is_relative_to(folder) for folder in self.allowed):
            known = f" (outside of {', '.join(map(str, self.allowed))})" if self.allowed else ""
            raise Unreached(f"{_root(place)} is not read{known}: name it by --artifacts")
        if not _root(place).is_dir():
            raise Unreached(f"there is no folder {_root(place)}: --artifacts names where the files are")
        return place

    def _place(self, uri: str) -> Path:
        scheme = uri.partition(":")[0]
        path = unquote(urlsplit(uri).path) if scheme in (SERVED, "file") else uri
        if "\0" in path or (path is uri and "://" in uri):
            raise Unreached(f"{uri[:200]!r} is no folder")
        if scheme != SERVED:
            return Path(path)
        if self.served is None:
            raise Unreached(f"{SERVED}:/ is the server's: --artifacts names its folder")
        return self.served / path.lstrip("/")


def _root(place: Path) -> Path:
    """What experiments lie in: files of a run are in ``<root>/<experiment>/<run>/artifacts``."""
    return [place, *place.parents][:4][-1]


@dataclass(frozen=True)
class StoredFile:
    name: str
    path: Path

    def digest(self) -> str:
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def files_below(folder: Path, prefix: str = "") -> Iterator[StoredFile]:
    """Files in the order of their names; links that lead out of the folder are passed over."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(place, name)
            if path.is_file() and path.resolve().is_relative_to(folder):
                yield StoredFile(_name_in_lab(f"{prefix}{path.relative_to(folder)}"), path)


def _name_in_lab(name: str) -> str:
    """As the lab has names of files: without folders."""
    return re.sub(r"[^\w .,+=()@-]", "-", name)[-LONGEST_NAME:].strip()


def send_files(server: Server, run: UUID, files: Sequence[StoredFile]) -> tuple[int, list[str]]:
    """Send the files that the run in the lab has not; how many it has of them, and why others are not."""
    known = {(row["name"], row["sha256"]) for row in server.get(f"/api/v1/logs/{run}/files")["files"]}
    more = len(files) - MOST_FILES
    there, left = 0, [f"{more} files beyond {MOST_FILES}"] if more > 0 else []
    for file in files[:MOST_FILES]:
        if file.path.stat().st_size > LARGEST_FILE:
            left.append(f"{file.name} is larger than {LARGEST_FILE // 2**20} MiB")
            continue
        digest = file.digest()
        try:
            if (file.name, digest) not in known:
                _send(server, run, file, digest)
                known.add((file.name, digest))
            there += 1
        except Refused as refusal:
            left.append(f"{file.name} is not taken: {refusal.args[0]}")
    return there, left


def _send(server: Server, run: UUID, file: StoredFile, digest: str) -> None:
    """The key makes it one artifact however often the way is cut between its upload and its run."""
    key = hashlib.sha256(f"{run} {file.name} {digest}".encode()).hexdigest()
    made = server.upload("/api/v1/artifacts", file.path, file.name, {"Idempotency-Key": key})
    server.post(f"/api/v1/logs/{run}/files", {"artifact": made["id"]}, in_project=False)
