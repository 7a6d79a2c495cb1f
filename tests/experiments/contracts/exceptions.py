"""A law that does not apply skips with the reason that the policy gives; no test has a list of exceptions."""

from __future__ import annotations

import pytest

from experiments.core.policy import Policy


def skip_exception(policy: type[Policy], law: str) -> None:
    """Skip the test of ``law`` with the reason where ``policy`` declares an exception from it."""
    if law in policy.exceptions:
        pytest.skip(policy.exceptions[law])
