"""Memory that a step frees is there for the next one, wherever it lay."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: A step of three blocks of 8 MiB, which are the end of the heap; prints the pages that twenty steps mapped.
STEPS = """
import ctypes, resource
from experiments.core.heap import keep_freed_memory

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
SIZE = 8 * 2**20

def step():
    blocks = [libc.malloc(SIZE) for _ in range(3)]
    for block in blocks:
        ctypes.memset(block, 1, SIZE)
    for block in blocks:
        libc.free(block)

if KEPT:
    keep_freed_memory()
step(), step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def mapped(is_kept: bool) -> int:
    script = STEPS.replace("KEPT", str(is_kept))
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return int(ended.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_steps_map_no_page_anew() -> None:
    assert mapped(is_kept=False) > 20 * 3 * 1024  # of 2,048 pages a block, as glibc ships
    assert mapped(is_kept=True) < 100
