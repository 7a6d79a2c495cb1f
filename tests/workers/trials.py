"""Trials for the tests of sandbox and supervisor: cheap real processes that behave or misbehave as told.

Called like the command line: ``trials.py --progress-fd N BEHAVIoR [ARGUMENT]``, or as the supervisor calls
``experiments run SPEC --out OUT``, where the spec's knob ``behavior`` tells.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

MEBIBYTE = 2**20


def report(descriptor: int, fraction: float, step: str) -> None:
    os.write(descriptor, json.dumps({"progress": fraction, "step": step}).encode() + b"\n")


def attempt(action) -> str:
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return "done"


def look_around(outside: str) -> None:
    """Print what can be reached from in here, as one JSON line."""
    loopback = socket.socket
    found = {
        "outside file": attempt(lambda: os.open(outside, os.O_RDONLY)),
        "passwords": attempt(lambda: os.open("/etc/shadow", os.O_RDONLY)),
        "write outside": attempt(lambda: os.open(outside + ".planted", os.O_WRONLY | os.O_CREAT)),
        "write inside": attempt(lambda: os.open("mine", os.O_WRONLY | os.O_CREAT)),
        "network": attempt(lambda: socket.create_connection(("192.0.2.1", 80), 0.2)),
        "loopback": attempt(lambda: loopback().bind(("127.0.0.1", 0))),
        "environment": sorted(os.environ),
    }
    sys.stdout.write(json.dumps(found))


def fork_and_stay(mark: str) -> None:
    """Two forks and a session of its own, deaf to SIGTERM: what a process group would miss."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(sys.executable, [sys.executable, "-c", f"import time; time.sleep(600) # {mark}"])
        os._exit(0)


def allocate_without_end() -> None:
    held = []
    while True:
        held.append(bytearray(8 * MEBIBYTE))


def outcome(spec: dict) -> dict:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from experiments.core.jsonio import digest

    metrics = {"peak_memory": {"value": 42.0, "unit": "bytes", "lower_is_better": True}}
    return {
        "spec": spec,
        "spec_id": digest(spec),
        "status": "ok",
        "reason": None,
        "metrics": metrics,
        "series": {},
        "plan": {},
        "violations": [],
        "provenance": {"seconds": 0.0},
    }


def behave(what: str, argument: str, progress: int) -> None:
    report(progress, 0.5, "half way")
    if what == "look":
        look_around(argument)
    elif what == "segfault":
        ctypes.string_at(0)
    elif what == "allocate":
        allocate_without_end()
    elif what == "fork":
        fork_and_stay(argument)
        time.sleep(600)
    elif what == "leave-a-child":
        fork_and_stay(argument)
    elif what == "sleep":
        time.sleep(float(argument))
    elif what == "work":
        for _ in range(int(float(argument) * 100)):
            time.sleep(0.01)
    elif what == "write":
        time.sleep(1.0)
        with open("written", "wb", buffering=0) as file:
            for _ in range(int(argument)):
                file.write(bytes(MEBIBYTE))
    elif what == "exit":
        sys.stderr.write("error: spec.policy: 'nonsense' is not a policy\n")
        sys.exit(int(argument))


def main() -> None:
    words = sys.argv[1:]
    progress = int(words[words.index("--progress-fd") + 1])
    if words[0] == "run":
        spec = json.loads(Path(words[1]).read_text())
        what, _, argument = str(spec["knobs"].get("behavior", "")).partition(" ")
        behave(what, argument, progress)
        Path(words[words.index("--out") + 1]).write_text(json.dumps(outcome(spec)))
    else:
        behave(words[2], words[3] if len(words) > 3 else "", progress)


if __name__ == "__main__":
    main()
