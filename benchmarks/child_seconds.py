"""A child process and the processor seconds that it took."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Child:
    """How a child ended (its last words where it failed), and its seconds of the processor."""

    seconds: float
    ended: str


def run_child(command: Sequence[str], timeout: float, environment: Mapping[str, str]) -> Child:
    """Run ``command`` to its end, or to ``timeout`` seconds."""
    before = children_seconds()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, env={**os.environ, **environment}
        )
    except subprocess.TimeoutExpired:
        return Child(children_seconds() - before, "timeout")
    said = done.stderr.strip().splitlines()
    ended = "" if not done.returncode else said[-1][:100] if said else f"exit code {done.returncode}"
    return Child(children_seconds() - before, ended)


def children_seconds() -> float:
    """Processor seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
