"""A program from which processes are forked, each for one of the things that they are tested for."""

from __future__ import annotations

import os
import random
import sys
import threading
import time

from experiments.core.fork_server import serve

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
    elif what == "fail":
        raise ValueError(f"no {rest[0]}")
    elif what == "exit":
        sys.exit(int(rest[0]))
    elif what == "sleep":
        time.sleep(3600)


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if os.environ.get("THREADED"):
        threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
    serve(main)
