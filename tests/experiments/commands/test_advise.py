"""``advise`` as outside checks use it: exit codes, JSON on stdout, one line on stderr."""

import json

import pytest

from experiments.__main__ import main

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

TINY = '{"device": "t4-16g", "overrides": {"memory_bytes": 1e4}}'


def test_a_model_that_fits_is_one_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", "zoo:mlp", "--hardware", "t4-16g", "--batch", "8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["chosen"] == found["rows"][0]
    assert found["chosen"]["spec"]["workload"]["options"]["batch"] == 8
    assert found["answer"][0].startswith("It fits t4-16g as asked: ")
    assert main(["advise", "zoo:mlp", "--hardware", "t4-16g", "--options", '{"batch": 8}']) == 0
    shown = capsys.readouterr().out
    assert found["answer"][0] in shown
    assert "* as asked" in shown


def test_what_fits_in_no_way_is_exit_3_and_still_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["advise", "zoo:mlp", "--batch", "8", "--hardware", TINY, "--json", "--progress", "none"]) == 3
    )
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert found["chosen"] is None
    assert {one["name"] for one in found["left_out"]} == {"fused loss", "8-bit state"}
    assert shown.err.count("\n") == 1
    assert "nothing fits: the smallest, " in shown.err


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["--hardware", "t4-16g", "--nodes", "2"], "mlp: is not known by its sizes (expected a decoder-only"),
        (["--hardware", "t4-16g", "--nodes", "0"], "nodes = 0 (expected an integer from 1"),
        (["--hardware", '{"device": "t4-16g"}', "--nodes", "2"], "--hardware: nodes and devices beside an"),
        (["--hardware", '["t4-16g"]'], "is not a device or a cluster (expected an object"),
        (["--hardware", "b300"], "b300"),
        (["--hardware", "t4-16g", "--sequence", "8"], "has no sequence"),
        (["--hardware", "t4-16g", "--batch", "0"], "0 is too small"),
        (
            ["--hardware", "t4-16g", "--batch", "8", "--options", '{"batch": 4}'],
            "--batch: 8 and batch 4 of --options (expected one of them)",
        ),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    more: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise", "zoo:mlp", *more]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1
