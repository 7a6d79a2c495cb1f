"""Prompts over the model's context and objectives that requests bring, by every policy of one model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Outcome, load_spec
from experiments.readers.base import open_file
from experiments.run import run
from experiments.serving.experiment.context import fit_to_context
from experiments.serving.interface import ServingPolicy
from experiments.serving.interface.paged import PagedPolicy
from experiments.serving.interface.phases import PhasePolicy
from experiments.workloads.requests import Measured
from tests.experiments.serving.traces import policies_of, requests

TWO_DEVICES = {"cluster": {"nodes": 1, "devices_per_node": 2, "device": "a100-80g"}}
#: Llama-2 has a context of 4,096 tokens.
LONG = "arrival,prompt,output\n0,5000,8\n0.1,4090,20\n0.2,100,8\n"
OF_ONE_ENGINE = sorted(policies_of(ServingPolicy) + policies_of(PagedPolicy))


def outcome(source: Path, policy: str, **knobs: Any) -> Outcome:
    apart = policy in policies_of(PhasePolicy)
    told: dict[str, Any] = {
        "family": "serving",
        "policy": policy,
        "knobs": knobs,
        "workload": {"source": str(source), "options": {"model": "llama2-7b"}},
        "hardware": TWO_DEVICES if apart else "a100-80g",
    }
    return run(load_spec(told))


@pytest.mark.parametrize("policy", [*OF_ONE_ENGINE, *policies_of(PhasePolicy)])
def test_a_prompt_over_the_context_is_refused_or_cut(policy: str, tmp_path: Path) -> None:
    file = tmp_path / "long.csv"
    file.write_text(LONG)
    refused = outcome(file, policy)
    assert refused.status == "ok", refused.reason
    assert refused.metrics["rejected_requests"]["value"] == 1
    columns = refused.plan["columns"]
    (row,) = (
        dict(zip(columns, row, strict=True)) for row in refused.plan["rows"] if row[columns.index("rejected")]
    )
    assert row["prompt"] == 5000 and row.get("reason", "over the model's context of 4096").endswith("of 4096")
    cut = outcome(file, policy, truncate=True)
    assert cut.metrics["rejected_requests"]["value"] == 0
    prompts = [row[columns.index("prompt")] for row in cut.plan["rows"]]
    assert prompts == [4088, 4076, 100]
    (said,) = (text for text in cut.provenance["warnings"] if "prompts were cut" in text)
    assert said.startswith("2 of 3 prompts") and "926 tokens in all" in said


@pytest.mark.parametrize("policy", [*OF_ONE_ENGINE, *policies_of(PhasePolicy)])
def test_an_answer_ends_where_the_context_does(policy: str, tmp_path: Path) -> None:
    """Of 4,096 tokens 6 are left behind a prompt of 4,090, all 96 behind 4,000, a token behind 4,096."""
    file = tmp_path / "long.csv"
    file.write_text("arrival,prompt,output\n0,4090,20\n1,4000,96\n2,4096,900000\n3,5000,900000\n")
    found = outcome(file, policy)
    assert found.status == "ok", found.reason
    assert found.metrics["context_limited_requests"]["value"] == 2
    assert found.metrics["rejected_requests"]["value"] == 1
    columns = found.plan["columns"]
    assert [row[columns.index("output")] for row in found.plan["rows"]] == [6, 96, 1, 900000]
    (said,) = (text for text in found.provenance["warnings"] if "context" in text)
    assert said.startswith("2 of 4 answers end") and "900,013 tokens of answers" in said
    cut = outcome(file, policy, truncate=True)
    assert [row[columns.index("prompt")] for row in cut.plan["rows"]] == [4076, 4000, 1, 1]
    assert [row[columns.index("output")] for row in cut.plan["rows"]] == [20, 96, 4095, 4095]
    assert cut.metrics["context_limited_requests"]["value"] == 2


def test_times_of_whole_answers_are_not_compared_with_those_of_shorter_ones() -> None:
    truth = Measured(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    trace = replace(requests((0, 10, 20), (0, 10, 30)), measured=truth)
    assert fit_to_context(trace, 40, truncate=False).trace.measured is truth
    assert fit_to_context(trace, 39, truncate=False).trace.measured is None
    assert fit_to_context(trace, 39, truncate=True).trace.measured is None


def test_a_cut_prompt_shares_no_prefix_any_more(tmp_path: Path) -> None:
    file = tmp_path / "long.jsonl"
    row = {"prompt": 5000, "output": 8, "block": 16, "hashes": list(range(312))}
    file.write_text("".join(json.dumps({"arrival": place * 30.0, **row}) + "\n" for place in range(2)))
    short = tmp_path / "short.jsonl"
    row |= {"prompt": 4000, "hashes": list(range(250))}
    short.write_text("".join(json.dumps({"arrival": place * 30.0, **row}) + "\n" for place in range(2)))
    found = outcome(file, "vllm_v1", truncate=True).metrics["prefix_hit_fraction"]["value"]
    assert found == 0.0
    assert outcome(short, "vllm_v1", truncate=True).metrics["prefix_hit_fraction"]["value"] > 0.4


@pytest.mark.parametrize("policy", [*OF_ONE_ENGINE, *policies_of(PhasePolicy)])
def test_requests_bring_objectives_of_their_own(policy: str, tmp_path: Path) -> None:
    """An hour is met, a microsecond is not, and a request without one has nothing to miss."""
    file = tmp_path / "slo.csv"
    file.write_text("arrival,prompt,output,slo\n0,100,4,3600\n1,100,4,1e-6\n2,100,4,\n3,100,4,1e-6\n")
    assert outcome(file, policy).metrics["slo_attainment"]["value"] == 0.5
    tight = outcome(file, policy, slo_ttft=1e-6)
    assert tight.metrics["slo_attainment"]["value"] == 0.0


def test_lines_tell_objectives_sessions_and_models(tmp_path: Path) -> None:
    file = tmp_path / "slo.jsonl"
    rows = [
        {"arrival": 0, "prompt": 100, "output": 4, "slo": 3600, "session": "a", "model": "chat"},
        {"arrival": 1, "prompt": 100, "output": 4, "slo": None, "session": "b"},
        {"arrival": 2, "prompt": 100, "output": 4, "slo": 1e-6, "session": "a", "priority": 3},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = outcome(file, "vllm_v1").metrics["slo_attainment"]["value"]
    assert found == pytest.approx(2 / 3)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_objectives_of_a_trace_are_scaled_once(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"slo.{suffix}"
    rows = [{"arrival": 0, "prompt": 100, "output": 4, "slo": 2}, {"arrival": 1, "prompt": 100, "output": 4}]
    if suffix == "csv":
        file.write_text("arrival,prompt,output,slo\n0,100,4,2\n1,100,4,\n")
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    trace = open_file(file, "auto", WorkloadOptions(slo_scale=3.0)).reading.value
    assert trace.slo[0] == 6.0 and np.isnan(trace.slo[1])


def test_without_objectives_there_is_nothing_to_scale(tmp_path: Path) -> None:
    file = tmp_path / "plain.csv"
    file.write_text("arrival,prompt,output\n0,100,4\n")
    with pytest.raises(BadInput, match="can be scaled") as told:
        open_file(file, "auto", WorkloadOptions(slo_scale=3.0))
    assert "slo_ttft" in str(told.value)


LINE = '{"arrival": 5, "prompt": 10, "output": 4}'


def blocks_in_second_line(hashes: str) -> str:
    """Two requests, of which the second arrives first and alone tells blocks."""
    return f'{LINE}\n{{"arrival": 0, "prompt": 40, "output": 4, "block": 16, "hashes": {hashes}}}\n'


def test_a_prompt_without_blocks_shares_none(tmp_path: Path) -> None:
    """Two prompts of 40 tokens have the same two blocks: the second finds 32 of all 90 prompt tokens."""
    told = '"prompt": 40, "output": 4, "block": 16, "hashes": [7, 8]'
    file = tmp_path / "some.jsonl"
    file.write_text(f'{LINE}\n{{"arrival": 0, {told}}}\n{{"arrival": 9, {told}}}\n')
    found = outcome(file, "vllm_v1").metrics["prefix_hit_fraction"]["value"]
    assert found == pytest.approx(32 / 90)


@pytest.mark.parametrize(
    ("name", "text", "where"),
    [
        ("a.csv", "arrival,prompt,output,slo\n0,10,4,0\n", "line 2, column slo"),
        ("a.csv", "arrival,prompt,output,slo\n0,10,4,soon\n", "line 2, column slo"),
        ("a.csv", "arrival,prompt,output\n0,0,4\n", "line 2, column prompt"),
        ("a.csv", "arrival,prompt,output\nnan,5,4\n", "line 2, column arrival"),
        ("a.csv", "arrival,prompt,output\n-1,5,4\n", "line 2, column arrival"),
        ("a.jsonl", '{"arrival": 0, "prompt": 10, "output": 4, "slo": -1}\n', "line 1, column slo"),
        ("a.jsonl", '{"arrival": 0, "prompt": 10, "output": 4}\n[1]\n', "a.jsonl, line 2"),
        ("a.jsonl", '{"arrival": 0, "prompt": 10, "output": 4}\n{"arrival": 1}\n', "line 2, column prompt"),
        ("a.jsonl", '{"arrival": 0, "prompt": 10, "output": "x"}\n', "line 1, column output"),
        ("a.jsonl", '{"arrival": 0, "prompt": 10, "output": 0}\n', "line 1, column output"),
        ("a.jsonl", f"{LINE}\n\n{LINE}\n[1]\n", "a.jsonl, line 4"),
        ("a.jsonl", '{"arrival": 0, "prompt": "10", "output": 4}\n', "line 1, column prompt: '10'"),
        ("a.jsonl", '{"arrival": 0, "prompt": 10, "output": 4, "first_token": -1}\n', "column first_token"),
        ("a.jsonl", blocks_in_second_line("[1, 2, 3]"), "line 2, column hashes: 3 blocks of a prompt of 40"),
        ("a.jsonl", blocks_in_second_line('["x"]'), "line 2, column hashes"),
        ("a.jsonl", blocks_in_second_line("[1]").replace("16", "0"), "line 2, column block"),
    ],
)
def test_what_is_wrong_of_a_request_is_said_with_its_place(
    name: str, text: str, where: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(BadInput) as found:
        outcome(file, "orca")
    assert where in str(found.value), str(found.value)
    assert found.value.expected
