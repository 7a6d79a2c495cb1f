"""``pt2``: a program saved by ``torch.export.save`` of torch 2.9 or newer. Read as a zip of JSON and raw numbers.

``torch.export.load`` runs code from a crafted file (pickled weights, constants and sample inputs; expressions of
symbols and guards that it evaluates), so it is never called. What is read here: ``models/NAME.json``, the two
configurations of weights and constants, and the raw bytes they name. Sample inputs are pickles: left unopened, a batch
is made from the graph's own description instead.
"""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from experiments.core import jsonio
from experiments.core.errors import BadInput
from experiments.core.spec import WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.readers.pt2_graph import program_of
from experiments.readers.pt2_weights import stored_tensors
from experiments.workloads.model import ModelSource

MOST_MEMBERS = 20_000
LARGEST_JSON = 1 << 26

#: Members that only an exported program has; one of them stands near the front of the file.
MARKS = (
    *(b"/data/weights/", b"/data/constants/", b"/data/aotinductor/", b"/archive_format"),
    b"serialized_exported_program.json",
)
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


def _recognises(head: bytes, name: str) -> bool:
    return head[:4] == b"PK\x03\x04" and any(mark in head for mark in MARKS)


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


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    archive = opened(data, name)
    _check_kind(archive)
    model = _model_name(archive)
    weights = stored_tensors(archive, f"data/weights/{model}_weights_config.json", "weight_")
    constants = stored_tensors(archive, f"data/constants/{model}_constants_config.json", "tensor_")
    where = f"{name}: models/{model}.json"
    digest = hashlib.sha256(data).hexdigest()
    program, notes = program_of(archive.json(f"models/{model}.json"), weights | constants, digest, where)
    sizes = (options.batch or program.batch, options.sequence or program.sequence or 0)
    program.shapes(*sizes, options.image or program.image or 0)
    return Reading(ModelSource(PurePath(name).stem, options=options, program=program), assumed=notes)


def opened(data: bytes, name: str) -> Archive:
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


def _check_kind(archive: Archive) -> None:
    """The format, its version and the order of bytes, each a member of its own."""
    for path, wanted in (("archive_format", "pt2"), ("archive_version", "0"), ("byteorder", "little")):
        found = archive.word(path)
        if found != wanted:
            raise BadInput(f"{found!r:.80}", f"{archive.name}: {path}", repr(wanted))


def _model_name(archive: Archive) -> str:
    """The one model of the archive."""
    found = [path[len("models/") : -len(".json")] for path in archive.members if path.startswith("models/")]
    if len(found) != 1:
        raise BadInput(f"holds {len(found)} models", f"{archive.name}: models", "one model")
    return found[0]


READER = Reader("pt2", "model", "a program saved by torch.export.save", _recognises, _read)
