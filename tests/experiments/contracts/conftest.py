"""What every family's tests of the laws share: the exceptions that a policy declares."""

from __future__ import annotations

import pytest

from experiments.core import registry
from tests.experiments.contracts.exceptions import TESTS, skip_exception

LAW_OF = {test: law for law, test in TESTS.items()}


@pytest.fixture(autouse=True)
def declared_exception(request: pytest.FixtureRequest) -> None:
    """Skip the test of a law from which the policy under test (``name``) declares an exception."""
    law = LAW_OF.get(request.function.__name__)
    if law is not None:
        family = request.module.__name__.rpartition(".test_")[2].removesuffix("_family")
        skip_exception(registry.policy_class(family, request.getfixturevalue("name")), law)
