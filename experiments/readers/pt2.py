"""``pt2``: a program saved by ``torch.export.save`` of torch 2.9 or newer. Read as a zip of JSON and raw
numbers.

``torch.export.load`` runs code from a crafted file (pickled weights, constants and sample inputs; expressions
of symbols and guards that it evaluates), so it is never called. What is read here: ``models/NAME.json``, the
two configurations of weights and constants, and the raw bytes they name. Sample inputs are pickles: left
unopened, a batch is made from the graph's own description instead.
"""

from __future__ import annotations

import hashlib
from pathlib import PurePath

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.readers.pt2_archive import Archive, open_archive
from experiments.readers.pt2_graph import program_of
from experiments.readers.pt2_weights import stored_tensors
from experiments.workloads.model import ModelSource

#: Members that only an exported program has; one of them stands near the front of the file.
MARKS = (
    *(b"/data/weights/", b"/data/constants/", b"/data/aotinductor/", b"/archive_format"),
    b"serialized_exported_program.json",
)


def _recognizes(head: bytes, name: str) -> bool:
    return head[:4] == b"PK\x03\x04" and any(mark in head for mark in MARKS)


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    archive = open_archive(data, name)
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


READER = Reader("pt2", "model", "a program saved by torch.export.save", _recognizes, _read)
