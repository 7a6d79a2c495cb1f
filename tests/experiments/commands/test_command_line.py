"""The command line as outside checks use it: exit codes, one line on stderr, JSON on stdout."""

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.__main__ import main

JOBS = "job,submit,gpus,service\na,0,1,10\nb,0,1,5\n"


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(JOBS)
    return path


def spec_file(tmp_path: Path, **change: Any) -> str:
    spec = {
        "family": "cluster",
        "policy": "fifo",
        "workload": {"source": str(tmp_path / "jobs.csv")},
        "hardware": {"cluster": {"nodes": 1, "devices_per_node": 1, "device": "k80-12g"}},
    }
    path = tmp_path / "spec.json"
    path.write_text(json.dumps({**spec, **change}))
    return str(path)


def test_a_run_prints_its_outcome_and_the_same_spec_gives_the_same_one(
    jobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = []
    for _ in range(2):
        assert main(["run", spec_file(tmp_path)]) == 0
        outcome = json.loads(capsys.readouterr().out)
        outcome.pop("provenance")
        outcomes.append(outcome)
    assert outcomes[0] == outcomes[1]
    assert outcomes[0]["status"] == "ok"
    # One GPU: a runs 0-10, b 10-15.
    assert outcomes[0]["metrics"]["avg_jct"] == {"value": 12.5, "unit": "s", "lower_is_better": True}


def test_a_run_leaves_a_trace_for_perfetto(jobs: Path, tmp_path: Path) -> None:
    """Whatever the family: its curves over time are counters, in ascending time."""
    told, drawn = tmp_path / "outcome.json", tmp_path / "trace.json"
    assert main(["run", spec_file(tmp_path), "--out", str(told), "--trace", str(drawn)]) == 0
    events = json.loads(drawn.read_text())["traceEvents"]
    counted = [event for event in events if event["ph"] == "C"]
    curves = json.loads(told.read_text())["series"].values()
    assert len(counted) == sum(len(curve["x"]) for curve in curves if curve["x_unit"] == "s") > 0
    times = [event["ts"] for event in counted]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"policy": "nope"}, "unknown policy 'nope'"),
        ({"knobs": {"speed": 9}}, "unknown field 'speed' = 9"),
        ({"hardware": "b300"}, "b300"),
        ({"workload": {"source": "absent.csv"}}, "absent.csv: No such file"),
        ({"mode": "measured"}, "mode measured on hardware"),
        ({"mode": "measured", "policy": "gavel"}, "cannot be measured"),
        ({"surprise": 1}, "unknown field 'surprise'"),
    ],
)
def test_a_bad_spec_is_one_line_and_exit_2(
    jobs: Path, tmp_path: Path, change: dict[str, Any], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", spec_file(tmp_path, **change)]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1


def test_a_step_that_does_not_fit_is_exit_3_and_still_an_outcome(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {"device": "a100-40g", "overrides": {"memory_bytes": 1e6}}
    workload = {"source": "zoo:mlp", "options": {"batch": 64}}
    assert (
        main(
            [
                "run",
                spec_file(tmp_path, family="memory", policy="baseline", workload=workload, hardware=small),
            ]
        )
        == 3
    )
    shown = capsys.readouterr()
    assert json.loads(shown.out)["status"] == "infeasible"
    assert "missing" in shown.err


def test_the_outcome_goes_to_a_file_and_progress_to_stderr(
    jobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "outcome.json"
    assert main(["run", spec_file(tmp_path), "--out", str(out), "--progress", "json"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert json.loads(shown.err.splitlines()[-1]) == {"progress": 1.0, "step": "done"}
    assert json.loads(out.read_text())["status"] == "ok"


def test_what_a_run_assumes_of_a_cluster_is_said_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "requests.csv").write_text("arrival,prompt,output\n0,100,20\n")
    workload = {"source": str(tmp_path / "requests.csv")}
    served = {"family": "serving", "policy": "orca", "workload": workload}
    parts = {"nodes": 2, "devices_per_node": 8, "device": "a100-80g"}
    assert main(["run", spec_file(tmp_path, **served, hardware=parts)]) == 0
    assert capsys.readouterr().err.startswith("warning: assumed of each node: one adapter, ib-200g")
    machines = {"nodes": 2, "node": "dgx-a100"}
    assert main(["run", spec_file(tmp_path, **served, hardware=machines)]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("verb", ["list", "formats", "hardware", "claims"])
def test_every_catalog_is_json_and_text(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) > 3
    assert main([verb]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(rows) + 1


def test_the_fixed_sheets_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    main(["hardware", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert all(row["source"] for row in rows)
    assert {"titan-x-12g", "a100-80g", "h200-141g", "tpu-v4", "nvlink-v100", "ib-100g"} <= {
        row["name"] for row in rows
    }


def test_inspect_says_what_a_file_is(jobs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(jobs), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["format"]) == ("jobs", "jobs-csv")
    assert {"label": "jobs", "value": 2, "unit": ""} in found["summary"]["cards"]
    assert main(["inspect", str(jobs)]) == 0


def test_a_verb_that_there_is_not_is_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["adviser", "zoo:mlp"])
    assert exit.value.code == 2
    assert "invalid choice: 'adviser'" in capsys.readouterr().err
