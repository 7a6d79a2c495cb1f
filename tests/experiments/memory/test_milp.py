"""The thin wrapper of the solver."""

import os

import pytest

from experiments.memory.planning.milp import MixedIntegerProgram, quiet


def knapsack() -> MixedIntegerProgram:
    """Values 10, 9, 6, 6 with weights .5 .4 .3 .3 in a capacity of .6: the third and fourth, 12."""
    program = MixedIntegerProgram()
    items = [program.binary(cost=-value) for value in (10, 9, 6, 6)]
    program.row(zip(items, (0.5, 0.4, 0.3, 0.3), strict=True), at_most=0.6)
    return program


def test_a_knapsack_takes_the_two_last_items():
    solution = knapsack().solve()
    assert solution.proven
    assert solution.objective == -12
    assert [solution.chosen(item) for item in range(4)] == [False, False, True, True]


def test_a_relaxed_program_is_a_lower_bound():
    # 9 / .4 is the densest, then 10 / .5, 6 / .3: 9 and two fifths of the first.
    assert knapsack().solve(relaxed=True).objective == pytest.approx(-9 - 0.4 * 10)


def test_fixing_what_is_whole_in_the_relaxed_solution_leaves_the_rest_to_branch_on():
    # The second item is whole in the relaxed solution and stays; no other fits beside it.
    program = knapsack()
    program.fix(program.solve(relaxed=True))
    assert program.solve().objective == -9


def test_what_cannot_be_met_has_no_solution():
    program = MixedIntegerProgram()
    program.row([(program.binary(), 1.0)], at_least=2.0)
    assert program.solve() is None


def test_coefficients_of_a_variable_named_twice_add_up():
    program = MixedIntegerProgram()
    x = program.number(cost=1.0)
    program.row([(x, 1.0), (x, 2.0)], at_least=6.0)
    assert program.solve().objective == pytest.approx(2.0)


def test_an_empty_program_costs_nothing():
    assert MixedIntegerProgram().solve().objective == 0.0


def test_what_the_solver_writes_does_not_reach_standard_output(capfd):
    with quiet():
        os.write(1, b"a line of the solver")
    os.write(1, b"a result")
    assert capfd.readouterr().out == "a result"
