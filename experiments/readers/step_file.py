"""``step``: a captured or profiled step that this project stored itself (``experiments profile --out``).

A step whose figures somebody else published has ``facts["origin"]``: ``project``, ``commit``, ``license``,
the SHA-256 of each original file (``files``), and what the reader of the originals ``assumed`` and doubted
(``doubts``).
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.workloads import storage
from experiments.workloads.fixed_options import refuse_other_options

ORIGIN = "origin"


def _recognizes(head: bytes, name: str) -> bool:
    return head[:2] == b"PK" and head[30:40] == b"header.npy"


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    step = storage.load(io.BytesIO(data), name)
    refuse_other_options(step.facts, vars(options), name)
    origin = step.facts.get(ORIGIN)
    if origin is None:
        return Reading(step)
    if not isinstance(origin, Mapping):
        raise BadInput(f"{origin!r:.80} is not an object", f"{name}: {ORIGIN}", "an object")
    project, commit, license = (_text(origin, key, name) for key in ("project", "commit", "license"))
    source = f"figures of {project} at {commit} ({license})"
    return Reading(step, (source, *_lines(origin, "assumed", name)), _lines(origin, "doubts", name))


def _text(origin: Mapping[str, Any], key: str, name: str) -> str:
    value = origin.get(key)
    if not isinstance(value, str):
        raise BadInput(f"{value!r:.80} is not a text", f"{name}: {ORIGIN}.{key}", "a string")
    return value


def _lines(origin: Mapping[str, Any], key: str, name: str) -> tuple[str, ...]:
    value = origin.get(key, [])
    if not isinstance(value, list) or not all(isinstance(line, str) for line in value):
        raise BadInput(f"{value!r:.80} is no list of lines", f"{name}: {ORIGIN}.{key}", "a list of strings")
    return tuple(value)


READER = Reader("step", "step", "a captured or profiled step stored by this lab", _recognizes, _read)
