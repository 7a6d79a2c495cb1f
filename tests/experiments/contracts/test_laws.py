"""Every family keeps the same five laws, by the same names; an exception names a law and says why."""

from __future__ import annotations

import importlib

import pytest

from experiments.core import registry
from experiments.core.policy import FAMILIES, LAWS

TESTS = {
    "legal": "test_its_plan_is_legal",
    "repeatable": "test_it_is_repeatable",
    "survives_json": "test_its_plan_survives_json",
    "closed_form": "test_closed_form_on_the_smallest_case",
    "bound": "test_never_better_than_the_bound",
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("law", LAWS)
def test_every_family_has_a_test_of_every_law(family: str, law: str) -> None:
    module = importlib.import_module(f"tests.experiments.contracts.test_{family}_family")
    assert callable(getattr(module, TESTS[law]))


def test_an_exception_names_a_law_and_a_reason() -> None:
    for policy in registry.all_policies():
        assert set(policy.exceptions) <= set(LAWS), policy.name
        assert all(len(reason) > 15 for reason in policy.exceptions.values()), policy.name
