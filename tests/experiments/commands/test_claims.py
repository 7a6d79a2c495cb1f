"""``claims --run``: each verdict as it comes, kept in a file, gone on with, and stopped without loss."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from experiments.__main__ import main
from experiments.commands import claim_checks
from experiments.core import claims as core_claims
from experiments.core.claim_evidence import load_evidence
from experiments.core.errors import BadInput
from experiments.core.spec import Outcome, RunSpec

#: A sheet of closed forms, runs of seconds, and one claim that cannot be carried out.
POLICY = ("claims", "--family", "parallel", "--policy", "zero")


def outcome(spec: RunSpec, progress: Any = None) -> Outcome:
    """What stands in for a run: 1.5 times as many bytes at stage 3."""
    stage = int(spec.knobs["stage"])
    bytes_of = {0: 1.2e11, 1: 3.14e10, 2: 1.66e10, 3: 1.9e9}
    figures = {"persistent_bytes": bytes_of[stage], "communication_bytes": 1.5 if stage == 3 else 1.0}
    metrics = {name: {"value": value} for name, value in figures.items()}
    return Outcome(spec.to_json(), spec.spec_id, "ok", None, metrics, {}, {}, [], {})


@pytest.fixture
def carried_out(monkeypatch: pytest.MonkeyPatch) -> list[RunSpec]:
    """The runs that were carried out, none of them for real."""
    found: list[RunSpec] = []

    def run(spec: RunSpec, progress: Any = None) -> Outcome:
        found.append(spec)
        return outcome(spec)

    monkeypatch.setattr(claim_checks, "run", run)
    return found


def rows(text: str) -> list[dict[str, Any]]:
    return list(json.loads(text))


def test_the_contract_is_one_array_with_figure_tolerance_verdict_and_reason(
    carried_out: Sequence[RunSpec], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*POLICY, "--run", "--json"]) == 0
    shown = capsys.readouterr()
    found = {row["claim"]: row for row in rows(shown.out)}
    assert found["stage-3-volume"]["verdict"] == "identity"
    assert found["hundred-billion"]["verdict"] == "cannot be carried out"
    assert {"ours", "tolerance", "reason", "value", "low", "high"} <= set(found["stage-3-volume"])
    assert shown.err.splitlines()[-1] == "6 claims: 5 identity, 1 cannot be carried out"


def test_without_run_nothing_is_carried_out(
    carried_out: Sequence[RunSpec], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*POLICY, "--json"]) == 0
    words = [row["verdict"] for row in rows(capsys.readouterr().out)]
    assert words.count("not run") == 5 and not carried_out


def test_what_is_stopped_has_every_verdict_so_far_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C in the third run: two verdicts stand, the array is whole, and two runs are not repeated."""
    out, asked = tmp_path / "claims.json", []

    def run(spec: RunSpec, progress: Any = None) -> Outcome:
        asked.append(spec)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return outcome(spec)

    monkeypatch.setattr(claim_checks, "run", run)
    assert main([*POLICY, "--run", "--json", "--out", str(out)]) == 130
    shown = capsys.readouterr()
    assert [row["verdict"] for row in rows(shown.out)] == ["identity", "identity"]
    assert "go on with --resume" in shown.err
    kept = load_evidence(out)
    assert (
        sorted(row["verdict"] for row in kept.rows.values())
        == ["cannot be carried out"] + ["identity"] * 2 + ["not run"] * 3
    )
    assert main([*POLICY, "--run", "--out", str(out), "--resume"]) == 0
    assert len(asked) == 3 + 4
    assert "not run" not in {row["verdict"] for row in load_evidence(out).rows.values()}


def test_a_claim_that_changed_is_carried_out_again_and_the_others_are_not(
    tmp_path: Path, carried_out: list[RunSpec]
) -> None:
    out = tmp_path / "claims.json"
    main([*POLICY, "--run", "--out", str(out)])
    first = len(carried_out)
    text = out.read_text()
    digest = load_evidence(out).rows["parallel", "zero", "model-states-stage-1"]["digest"]
    out.write_text(text.replace(digest, "0" * 64))
    main([*POLICY, "--run", "--out", str(out), "--resume"])
    assert [spec.knobs["stage"] for spec in carried_out[first:]] == [1]
    row = load_evidence(out).rows["parallel", "zero", "model-states-stage-1"]
    assert row["digest"] == digest and row["revision"] and row["at"]


def test_a_run_that_two_claims_name_is_carried_out_once(carried_out: Sequence[RunSpec]) -> None:
    main(["claims", "--policy", "zero", "--run"])
    assert len({spec.spec_id for spec in carried_out}) == len(carried_out)


def test_claims_of_the_other_mode_are_left_out_with_the_reason(
    carried_out: Sequence[RunSpec], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*POLICY, "--run", "--mode", "measured", "--json"]) == 0
    reasons = {row["reason"] for row in rows(capsys.readouterr().out) if row["verdict"] == "not run"}
    assert reasons == {"has simulated runs; --mode measured left it out"}
    assert not carried_out


def test_a_run_that_fails_is_said_and_takes_no_other_claim_with_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(spec: RunSpec, progress: Any = None) -> Outcome:
        if spec.knobs["stage"] == 1:
            raise RuntimeError("no kernel image")
        return outcome(spec)

    monkeypatch.setattr(claim_checks, "run", run)
    assert main([*POLICY, "--run", "--json"]) == 0
    found = {row["claim"]: (row["verdict"], row["reason"]) for row in rows(capsys.readouterr().out)}
    assert found["model-states-stage-1"] == ("not run", "its run failed: RuntimeError: no kernel image")
    assert found["model-states-stage-2"][0] == "identity"


@pytest.mark.parametrize("more", [["--out", "x.json"], ["--run", "--resume"]])
def test_options_that_need_another_say_so(more: list[str]) -> None:
    assert main([*POLICY, *more]) == 2


def test_progress_says_which_claim_and_how_far_all_of_them_are(
    carried_out: Sequence[RunSpec], capsys: pytest.CaptureFixture[str]
) -> None:
    main([*POLICY, "--run", "--json", "--progress", "json"])
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    assert lines[-1]["progress"] == 1.0
    assert all(line["left"] >= 0 for line in lines if "left" in line)
    assert [line["progress"] for line in lines] == sorted(line["progress"] for line in lines)


def test_another_file_is_no_evidence(tmp_path: Path) -> None:
    other = tmp_path / "claims.json"
    other.write_text('{"format": "mlsys-validation-1", "cells": []}')
    with pytest.raises(BadInput, match="not the evidence of claims"):
        load_evidence(other)
    assert main([*POLICY, "--run", "--out", str(other), "--resume"]) == 2
    assert core_claims.chosen_claims("parallel", "zero")
