"""The zip archive of an exported program: where its members may lie, and their bytes."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any

from experiments.core import jsonio
from experiments.core.errors import BadInput

MOST_MEMBERS = 20_000
LARGEST_JSON = 1 << 26
#: Where each member may lie, below the archive's one folder.
KNOWN = re.compile(
    r"archive_format|archive_version|byteorder|\.[\w./]+|models/[^/]+\.json|data/weights/[^/]+"
    r"|data/constants/[^/]+|data/sample_inputs/[^/]+\.pt|extra/.+"
)
REFUSED = {
    "data/aotinductor/": ("holds a compiled binary", "a program saved by torch.export.save"),
    "data/executorch/": ("holds a compiled binary", "a program saved by torch.export.save"),
    "serialized_exported_program.json": (
        "keeps its weights in a pickle",
        "a file saved by torch 2.9 or newer",
    ),
    "data/weights/model.pt": ("keeps its weights in a pickle", "a file saved by torch 2.9 or newer"),
}


@dataclass(frozen=True)
class Archive:
    """The members below the archive's folder, by path."""

    file: zipfile.ZipFile
    root: str
    members: dict[str, zipfile.ZipInfo]
    name: str

    def bytes(self, path: str) -> bytes:
        """A member whole; never more than its entry in the directory promises."""
        where = f"{self.name}: {path}"
        if path not in self.members:
            raise BadInput("is missing", where, "a complete program of torch.export.save")
        info = self.members[path]
        try:
            with self.file.open(info) as stream:
                data = stream.read(info.file_size + 1)
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            OSError,
            RuntimeError,
            NotImplementedError,
        ) as error:
            raise BadInput(f"broken: {error}", where, "a complete zip file") from None
        if len(data) != info.file_size:
            raise BadInput(f"unpacks to other than its {info.file_size} bytes", where, "a sound zip file")
        return data

    def json(self, path: str) -> Any:
        if path in self.members and self.members[path].file_size > LARGEST_JSON:
            raise BadInput(
                f"{self.members[path].file_size} bytes", f"{self.name}: {path}", f"at most {LARGEST_JSON}"
            )
        return jsonio.loads(self.bytes(path), f"{self.name}: {path}")

    def word(self, path: str) -> str:
        return self.bytes(path)[:64].decode("ascii", "replace").strip()


def open_archive(data: bytes, name: str) -> Archive:
    """The archive with every member at a place where it may lie; ``BadInput`` names the first that is not."""
    try:
        file = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise BadInput(f"broken archive: {error}", name, "a complete zip file") from None
    entries = file.infolist()
    if not 0 < len(entries) <= MOST_MEMBERS:
        raise BadInput(f"{len(entries)} members", name, f"from 1 to {MOST_MEMBERS}")
    root = entries[0].filename.partition("/")[0]
    members: dict[str, zipfile.ZipInfo] = {}
    for info in entries:
        top, _, path = info.filename.partition("/")
        where = f"{name}: {_shown(info.filename)}"
        _check_place(top == root, path, where)
        if path in members:
            raise BadInput("appears twice", where, "each member once")
        members[path] = info
    return Archive(file, root, members, name)


def _check_place(inside: bool, path: str, where: str) -> None:
    parts = path.split("/")
    if not inside or ".." in parts or "" in parts or "\\" in path or not path.isprintable():
        raise BadInput("is no path inside the archive's one folder", where, "plain relative paths")
    for place, (what, wanted) in REFUSED.items():
        if path.startswith(place):
            raise BadInput(what, where, wanted)
    if not KNOWN.fullmatch(path):
        raise BadInput("is no part of an exported program", where, "what torch.export.save writes")


def _shown(path: str) -> str:
    plain = path.encode("utf-8", "replace").decode("utf-8")
    return "".join(c if c.isprintable() else "?" for c in plain)[:200]
