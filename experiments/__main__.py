"""``python -m experiments``: run, list, claims, inspect, formats, hardware, suite, suites, profile, capture,
advise, calibrate, communication, rules.
"""

from __future__ import annotations

import argparse
import os
import sys

# torch's profiler says on stderr when it starts and stops, and that is where progress goes.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

from experiments.commands import (
    advise,
    calibrate,
    catalog,
    claims,
    communication,
    inspect,
    model,
    rules,
    run,
    suite,
    suites,
)
from experiments.core.errors import LabError
from experiments.core.garbage import collect_rarely


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    verbs = top.add_subparsers(required=True, metavar="COMMAND")
    for module in (
        run,
        catalog,
        claims,
        inspect,
        model,
        advise,
        suite,
        suites,
        calibrate,
        communication,
        rules,
    ):
        module.add(verbs)
    return top


def main(arguments: list[str] | None = None) -> int:
    """Exit code: 0 done, 2 bad input, 3 infeasible, 1 anything else; errors are one line on stderr."""
    collect_rarely()
    chosen = parser().parse_args(arguments)
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
