"""The errors a user is meant to read, each with the exit code of the command line."""

from __future__ import annotations

from collections.abc import Sequence


class LabError(Exception):
    """An error whose message is for the user: one line, naming what is wrong and where."""

    exit_code = 1


class BadInput(LabError):
    """A spec, knob or file that cannot be used (exit code 2).

    ``what`` is the complaint with the offending value, ``where`` the file, line or field, ``expected`` what
    would have been accepted.
    """

    exit_code = 2

    def __init__(self, what: str, where: str | None = None, expected: str | None = None) -> None:
        self.what, self.where, self.expected = what, where, expected
        message = f"{where}: {what}" if where else what
        super().__init__(f"{message} (expected {expected})" if expected else message)


class ImpossiblePlan(LabError):
    """A plan or decision that nothing could carry out.

    It is the policy's fault, not the user's, and its run ends ``rejected``.

    ``violations``  all that is wrong; the first is the message. Each names the op, stage, job or request, and
                    the time where there is one.
    """

    def __init__(self, violations: Sequence[str]) -> None:
        self.violations = tuple(violations)
        super().__init__(self.violations[0])


class Infeasible(LabError):
    """A plan that cannot exist on this hardware (exit code 3): names the op, stage or job and by how much.

    ``missing`` is how much is lacking, in bytes, devices or seconds as the message says; ``None`` when the
    obstacle is not a quantity.
    """

    exit_code = 3

    def __init__(self, what: str, where: str, missing: float | None = None) -> None:
        self.what, self.where, self.missing = what, where, missing
        super().__init__(f"{where}: {what}")
