"""ModelSource: a model not yet built: a zoo name or a configuration, and the options of its step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.core.spec import WorkloadOptions


@dataclass(frozen=True)
class ModelSource:
    """``zoo`` names a builder of ``experiments.models``; otherwise ``config`` is a parsed HF ``config.json``."""

    name: str
    zoo: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    options: WorkloadOptions = field(default_factory=WorkloadOptions)
