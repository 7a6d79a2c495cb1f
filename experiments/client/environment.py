"""Where a program runs and from which code, without which a figure says little."""

from __future__ import annotations

import os
import platform
import resource
import shlex
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: Libraries whose versions are told, where the program has loaded them.
LIBRARIES = ("torch", "numpy", "jax", "transformers", "triton", "vllm", "deepspeed")
#: Variables that say which part of a job this is.
TOLD = ("SLURM_JOB_ID", "RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES")
#: Of a difference (characters), and for which git is waited for (seconds).
LONGEST_DIFF, GIT_PATIENCE = 500_000, 10


def describe_environment() -> dict[str, Any]:
    """Host, command, versions and revision as they are now."""
    found: dict[str, Any] = {
        "host": socket.gethostname(),
        "command": shlex.join([Path(sys.executable).name, *sys.argv])[:2000],
        "folder": str(Path.cwd()),
        "python": platform.python_version(),
        "system": platform.platform(),
    }
    for name in LIBRARIES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version:
            found[name] = str(version)
    found |= {name: os.environ[name] for name in TOLD if os.environ.get(name)}
    revision = _git("rev-parse", "HEAD")
    if revision:
        found["revision"] = revision.strip()
        found["branch"] = _git("rev-parse", "--abbrev-ref", "HEAD").strip()
    return found


def describe_difference() -> str:
    """What the checkout of the program has that its revision has not; empty outside of any."""
    text = _git("diff", "HEAD")
    if len(text) <= LONGEST_DIFF:
        return text
    return f"{text[:LONGEST_DIFF]}\n... {len(text) - LONGEST_DIFF} more characters"


def _git(*words: str) -> str:
    command: Sequence[str] = ("git", *words)
    try:
        done = subprocess.run(command, capture_output=True, timeout=GIT_PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""


def describe_device() -> str:
    """The GPU where torch has one, else the processor."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        count = torch.cuda.device_count()
        name = str(torch.cuda.get_device_name())
        return f"{count} x {name}" if count > 1 else name
    return f"{platform.machine()}, {os.cpu_count()} cores"


def memory_figures() -> dict[str, float]:
    """Bytes that the program has had at most on the host, and on its GPU where torch has one."""
    found = {"memory/host_peak_memory": 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        found["memory/peak_memory"] = float(torch.cuda.max_memory_allocated())
        found["memory/pool_bytes"] = float(torch.cuda.memory_reserved())
    return found
