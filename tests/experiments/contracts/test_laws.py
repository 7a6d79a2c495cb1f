"""Every family keeps the same five laws, by the same names; an exception names a law and says why."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import ClassVar

import pytest

from experiments.core import registry
from experiments.core.policy import FAMILIES, LAWS, Policy
from tests.experiments.contracts.exceptions import TESTS, skip_exception


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("law", LAWS)
def test_every_family_has_a_test_of_every_law(family: str, law: str) -> None:
    module = importlib.import_module(f"tests.experiments.contracts.test_{family}_family")
    assert callable(getattr(module, TESTS[law]))


def test_an_exception_names_a_law_and_a_reason() -> None:
    for policy in registry.all_policies():
        assert set(policy.exceptions) <= set(LAWS), policy.name
        assert all(len(reason) > 15 for reason in policy.exceptions.values()), policy.name


def test_a_declared_exception_skips_its_law_with_the_reason_and_no_other() -> None:
    class Declaring(Policy):
        exceptions: ClassVar[Mapping[str, str]] = {"bound": "it stops the clock"}

    with pytest.raises(pytest.skip.Exception, match="it stops the clock"):
        skip_exception(Declaring, "bound")
    skip_exception(Declaring, "legal")
