"""``step``: a captured or profiled step that this project stored itself (``experiments profile --out``)."""

from __future__ import annotations

import io

from experiments.core.spec import WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.workloads import storage


def _recognizes(head: bytes, name: str) -> bool:
    return head[:2] == b"PK" and head[30:40] == b"header.npy"


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    return Reading(storage.load(io.BytesIO(data), name))


READER = Reader("step", "step", "a captured or profiled step stored by this lab", _recognizes, _read)
