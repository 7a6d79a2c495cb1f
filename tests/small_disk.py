"""A small disk of its own, for what must happen when one is full."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

BALLAST = "ballast"


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """``folder`` with ``size`` bytes of room; skips the test where nothing may be mounted."""
    folder.mkdir()
    asked = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        subprocess.run(asked, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a small disk takes the right to mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True)


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """No room on ``disk`` inside the block."""
    ballast = disk / BALLAST
    try:
        with ballast.open("wb", buffering=0) as stream:
            while stream.write(bytes(2**16)):
                pass
    except OSError:
        pass
    try:
        yield
    finally:
        ballast.unlink()
