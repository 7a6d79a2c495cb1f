"""Captured steps on disk: each is made once per model, options and torch version, then shared by all runs.

Reading a cached step imports no torch.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

from experiments.core import jsonio
from experiments.core.errors import BadInput
from experiments.core.options import NOT_OF_THE_STEP
from experiments.core.progress import Progress, silent
from experiments.core.whole_files import write_whole
from experiments.workloads import storage
from experiments.workloads.model import COMPILED, ModelSource
from experiments.workloads.step import Step

#: Raise when a capture of the same model would give another Step.
CAPTURE_VERSION = 5


def folder() -> Path:
    """``$LAB_CACHE``, or ``~/.cache/mlsys-policy-lab``."""
    return Path(os.environ.get("LAB_CACHE") or Path.home() / ".cache" / "mlsys-policy-lab")


def key(source: ModelSource) -> str:
    """SHA-256 of everything that decides the step."""
    identity = source.identity()
    identity["options"] = {k: v for k, v in identity["options"].items() if k not in NOT_OF_THE_STEP}
    if source.kernels == COMPILED:
        identity["kernels"] = COMPILED
    return jsonio.digest({"source": identity, "torch": version("torch"), "capture": CAPTURE_VERSION})


def capture_cached(source: ModelSource, progress: Progress = silent) -> Step:
    """The Step of ``source``, from the cache or captured now. A damaged cache file is captured again."""
    path = folder() / "steps" / f"{key(source)}.npz"
    if path.is_file():
        try:
            return storage.load(path)
        except BadInput:
            path.unlink(missing_ok=True)
    from experiments.profiling.capture import capture

    step = capture(source, progress=progress)
    store(step, path)
    return step


def store(step: Step, path: Path) -> None:
    """Write ``path`` in one move, so that a reader sees a whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, storage.dumps(step), private=True)
