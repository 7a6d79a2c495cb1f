"""The side file of a model: ``adapter_config.json``, in which ``peft`` says what adapters it has.

It is known by its ``peft_type``; side files without one (substitution rules) are for others to read. Rank,
targets and the kind (LoRA or DoRA) are read; what else it says is named as ignored. Options that a spec gives
itself come before the file's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.core import jsonio
from experiments.core.errors import BadInput
from experiments.core.options import ALL_LINEAR, WorkloadOptions

LARGEST_FILE = 2**20
#: What is read, and what says where the file comes from.
READ = ("peft_type", "r", "target_modules", "use_dora")
ORIGIN = (
    "auto_mapping",
    "base_model_name_or_path",
    "inference_mode",
    "peft_version",
    "revision",
    "task_type",
)


def with_adapter(options: WorkloadOptions) -> tuple[WorkloadOptions, tuple[str, ...]]:
    """Return ``options`` with the adapter of the file that ``options.extra`` names, and what was assumed.

    The same options where it is no such file.
    """
    if options.extra is None:
        return options, ()
    name = Path(options.extra).name
    data = _content(Path(options.extra), name)
    if b'"peft_type"' not in data:
        return options, ()
    config = jsonio.loads(data, name)
    if not isinstance(config, dict):
        raise BadInput(f"{config!r:.80} is not an object", name, "an adapter_config.json")
    found = _adapter(config, name)
    given = {option: value for option, value in found.items() if option not in options.changes}
    empty: tuple[Any, ...] = (None, [], {})
    said = [key for key, value in config.items() if key not in (*READ, *ORIGIN) and value not in empty]
    ignored = f"; ignored: {', '.join(sorted(said))}" if said else ""
    rank, targets = found["adapter_rank"], found["adapter_targets"]
    return replace(options, **given), (f"{found['adapter']} of rank {rank} on {targets} by {name}{ignored}",)


def _content(path: Path, name: str) -> bytes:
    """The file's bytes; none of one that is too large to be a configuration."""
    try:
        return path.read_bytes() if path.stat().st_size <= LARGEST_FILE else b""
    except OSError as error:
        raise BadInput(error.strerror or str(error), name, "a readable side file") from None


def _adapter(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The options that the file gives."""
    kind, rank, targets = (config.get(key) for key in ("peft_type", "r", "target_modules"))
    if kind != "LORA":
        raise BadInput(f"peft_type {kind!r:.80} is no adapter that can be built", name, '"LORA"')
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
        raise BadInput(f"r = {rank!r:.80}", name, "the rank, a whole number from 1 on")
    if targets == ALL_LINEAR or targets is None:
        words = ALL_LINEAR
    elif isinstance(targets, list) and targets and all(isinstance(word, str) for word in targets):
        words = ",".join(sorted(targets))
    else:
        raise BadInput(f"target_modules = {targets!r:.80}", name, f'a list of names, or "{ALL_LINEAR}"')
    adapter = "dora" if config.get("use_dora") else "lora"
    return {"adapter": adapter, "adapter_rank": rank, "adapter_targets": words}
