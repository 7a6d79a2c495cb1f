"""A program from which processes are forked, each for one of the things that they are tested for."""

from __future__ import annotations

import ctypes
import os
import random
import resource
import sys
import threading
import time

from experiments.core.fork_server import serve

SIZE = 8 * 2**20
LOADED = f"{os.getpid()} {random.random()}"


def main(what: str, *rest: str) -> None:
    if what == "echo":
        say(*rest, *(line.strip() for line in sys.stdin))
    elif what == "tell":
        facts = {
            "loaded": LOADED,
            "parent": os.getppid(),
            "variable": os.environ.get("VARIABLE", ""),
            "random": random.random(),
        }
        say(*(facts[name] for name in rest))
    elif what == "step":
        say(pages_of_steps())
    elif what == "fail":
        raise ValueError(f"no {rest[0]}")
    elif what == "exit":
        sys.exit(int(rest[0]))
    elif what == "sleep":
        time.sleep(3600)


def pages_of_steps() -> int:
    """The pages that twenty steps map, each of three blocks of 8 MiB, which are the end of the heap."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    for number in range(22):
        if number == 2:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        blocks = [libc.malloc(SIZE) for _ in range(3)]
        for block in blocks:
            ctypes.memset(block, 1, SIZE)
        for block in blocks:
            libc.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if os.environ.get("THREADED"):
        threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
    serve(main)
