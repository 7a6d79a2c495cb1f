"""A law that does not apply skips with the reason that its policy or plan gives; no test has a
list of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pytest

#: The test of every law, by the same name in every family's file.
TESTS = {
    "legal": "test_its_plan_is_legal",
    "repeatable": "test_it_is_repeatable",
    "survives_json": "test_its_plan_survives_json",
    "closed_form": "test_closed_form_on_the_smallest_case",
    "bound": "test_never_better_than_the_bound",
}


class WithExceptions(Protocol):
    """A class of policies, or a plan: what can declare that laws do not apply to it."""

    @property
    def exceptions(self) -> Mapping[str, str]: ...


def skip_exception(declares: WithExceptions, law: str) -> None:
    """Skip the test of ``law`` with the reason where a policy or plan declares an exception from it."""
    if law in declares.exceptions:
        pytest.skip(declares.exceptions[law])
