"""The runs of a suite one after the other; one that cannot be carried out leaves the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from experiments.commands.claim_checks import FAILURES
from experiments.core.errors import LabError
from experiments.core.progress import Progress, part
from experiments.core.spec import Outcome, RunSpec
from experiments.core.suites import Suite
from experiments.run import run


@dataclass(frozen=True)
class SuiteRun:
    """What became of a run of a suite: its outcome, or the ``error`` that it ended with."""

    title: str
    spec: RunSpec
    outcome: Outcome | None
    error: str = ""


def carry_out(suite: Suite, progress: Progress) -> Iterator[SuiteRun]:
    """Yield each run as soon as it has ended, in the suite's order."""
    for done, (title, spec) in enumerate(suite.specs()):
        share = part(progress, done / len(suite.runs), (done + 1) / len(suite.runs))
        yield _carry_out(title, spec, share)


def _carry_out(title: str, spec: RunSpec, progress: Progress) -> SuiteRun:
    try:
        return SuiteRun(title, spec, run(spec, progress))
    except LabError as error:
        return SuiteRun(title, spec, None, str(error))
    except FAILURES as error:
        return SuiteRun(title, spec, None, f"{type(error).__name__}: {error}".splitlines()[0])
