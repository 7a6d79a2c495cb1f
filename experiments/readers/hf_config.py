"""``hf-config``: a Hugging Face ``config.json``, read as data. Nothing that it names is run or fetched."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from experiments.core import jsonio
from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.adapter_config import with_adapter
from experiments.readers.base import Reader, Reading
from experiments.workloads.hf import check_config, dropouts
from experiments.workloads.model import ModelSource

#: A configuration is a few kilobytes; one beyond this is something else.
LARGEST_FILE = 2**20


def _recognizes(head: bytes, name: str) -> bool:
    return head.lstrip()[:1] == b"{" and b'"model_type"' in head


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    if len(data) > LARGEST_FILE:
        raise BadInput(f"{len(data)} bytes", name, f"a configuration of at most {LARGEST_FILE} bytes")
    parsed = jsonio.loads(data, name)
    if not isinstance(parsed, dict):
        raise BadInput(f"{parsed!r:.80} is not an object", name, "a JSON object")
    config, warnings = check_config(parsed, name)
    options, adapter = with_adapter(options)
    source = ModelSource(PurePath(name).stem, config=config, options=options)
    return Reading(source, assumed=(*_assumptions(parsed, options), *adapter), warnings=warnings)


def _assumptions(config: dict[str, Any], options: WorkloadOptions) -> tuple[str, ...]:
    left_out = dropouts(config) if options.dropout is False else ()
    lines = [f"{', '.join(left_out)} built as 0"] if left_out else []
    if config.get("architectures"):
        lines.append("the head is the usual one of the model type, whatever architectures says")
    return tuple(lines)


READER = Reader("hf-config", "model", "a Hugging Face config.json", _recognizes, _read)
