"""A plan on a page speaks of tensors and layers, not of their numbers."""

from __future__ import annotations

from webapp.runs.plan_names import in_names

NAMES = {"ops": {"7": "mm_1 of head", "8": "add of head"}, "tensors": {"3": "mm_1 (activation, 2 KiB)"}}


def test_ops_and_tensors_have_names_and_keep_their_numbers() -> None:
    row = in_names({"action": "offload", "at": 7, "tensor": 3, "until": 8, "ratio": 2.0}, NAMES)
    assert row == {
        "action": "offload",
        "at": "mm_1 of head",
        "tensor": "mm_1 (activation, 2 KiB)",
        "until": "add of head",
        "ratio": 2.0,
    }
    assert (row["at"].number, row["tensor"].number) == ("7", "3")


def test_of_many_three_are_named_and_the_rest_counted() -> None:
    row = in_names({"at": 7, "ops": [7, 8, 9, 10, 11], "keep": [], "copy": True}, NAMES)
    assert row["ops"] == "mm_1 of head, add of head, 9 and 2 more"
    assert row["ops"].number == "7, 8, 9, 10, 11"
    assert (row["keep"], row["copy"]) == ([], True)


def test_a_stored_run_without_names_stays_as_it_is() -> None:
    row = {"at": 7, "tensor": 3}
    assert in_names(row, {}) is row
