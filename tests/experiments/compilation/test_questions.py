"""Every question that a compilation policy is asked has one row that says what carries the answer out."""

import pytest

from experiments.compilation.experiment import QUESTIONS, measured, simulated, way_of
from experiments.compilation.interface import CompilationPolicy
from experiments.core import registry
from experiments.core.policy import MODES

POLICIES = tuple(registry.family_policies("compilation").values())


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_a_policy_is_asked_one_question_and_answers_it_in_all_its_modes(
    policy: type[CompilationPolicy],
) -> None:
    asked = [kind for kind in policy.__mro__ if kind in QUESTIONS]
    assert len(asked) == 1
    for mode in policy.modes:
        assert callable(way_of(policy, mode))


def test_a_recipe_for_launches_is_followed_here_and_replayed_on_named_hardware() -> None:
    launches = registry.policy_class("compilation", "cuda_graph")
    assert way_of(launches, "simulated") is simulated.replay_launches
    assert way_of(launches, "measured") is measured.follow_recipe


def test_questions_stand_in_the_interface_and_every_row_is_of_a_mode() -> None:
    for question, ways in QUESTIONS.items():
        assert question.__module__.startswith("experiments.compilation.interface.")
        assert ways
        assert set(ways) <= set(MODES)
        assert set(ways) >= set(question.modes)
