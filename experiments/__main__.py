"""``python -m experiments``: run, list, claims, inspect, formats, hardware, suite, suites, profile, capture,
advise, calibrate, communication, rules.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys

# torch's profiler says on stderr when it starts and stops, and that is where progress goes.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

from experiments.core.errors import LabError
from experiments.core.garbage import collect_rarely

#: The module of ``commands`` that has each verb.
MODULES = {
    "run": "run",
    "list": "catalog",
    "formats": "catalog",
    "hardware": "catalog",
    "claims": "claims",
    "inspect": "inspect",
    "capture": "model",
    "profile": "model",
    "advise": "advise",
    "suite": "suite",
    "suites": "suites",
    "calibrate": "calibrate",
    "communication": "communication",
    "rules": "rules",
}


def parser(verb: str = "") -> argparse.ArgumentParser:
    """Return the parser of ``verb``'s module alone, since every trial begins here; of all for any other."""
    top = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    verbs = top.add_subparsers(required=True, metavar="COMMAND")
    for name in [MODULES[verb]] if verb in MODULES else dict.fromkeys(MODULES.values()):
        importlib.import_module(f"experiments.commands.{name}").add(verbs)
    return top


def main(arguments: list[str] | None = None) -> int:
    """Exit code: 0 done, 2 bad input, 3 infeasible, 1 anything else; errors are one line on stderr."""
    collect_rarely()
    words = sys.argv[1:] if arguments is None else arguments
    chosen = parser(*words[:1]).parse_args(words)
    try:
        return int(chosen.call(chosen) or 0)
    except LabError as error:
        print(f"error: {error}".replace("\n", " "), file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    sys.exit(main())
