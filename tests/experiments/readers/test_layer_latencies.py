"""Layer latencies and attention, each timed by itself: what a step of both takes, by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.core.errors import BadInput
from experiments.readers.job_profiles import open_profiles
from experiments.workloads.profiles.layer_times import LayerTimes

NAMES = ("embedding", "input_layernorm", "o_proj", "down_proj", "final_layernorm")
HEADER = "time_stats.attn_prefill.median,time_stats.attn_decode.median,num_tensor_parallel_workers,"
HEADER += "batch_size,prefill_chunk_size,kv_cache_size,is_prefill"
ROWS = (
    "0.010,,2,1,32,32,True",
    "0.014,,2,1,32,64,True",
    "0.020,,2,1,64,64,True",
    ",0.004,2,1,0,32,False",
    ",0.006,2,1,0,64,False",
    ",0.008,2,4,0,32,False",
    ",0.016,2,4,0,64,False",
)


def layers(largest: int = 64, ranks: int = 2) -> str:
    """Each layer takes 1,000 ns and 10 a token; the last one of a head and of attention is far off."""
    rows = ["layer_name,input,kv_cache,tp_size,latency(ns)"]
    for name in (*NAMES, "lm_head", "attn"):
        rows += [f"{name},{n},0,{ranks},{1000 + 10 * n}" for n in range(1, largest + 1)]
    return "\n".join(rows) + "\n"


def write(folder: Path, dense: str, attention: tuple[str, ...] = ROWS) -> Path:
    (folder / "layers.csv").write_text(dense)
    (folder / "attention.csv").write_text("\n".join((HEADER, *attention)) + "\n")
    return folder


def test_a_step_takes_its_layers_and_both_kinds_of_attention(tmp_path: Path) -> None:
    times = open_profiles(write(tmp_path, layers()))
    assert isinstance(times, LayerTimes) and times.ranks == 2
    assert set(times.by_tokens) == set(NAMES) and set(times.by_sequences) == {"lm_head"}
    assert times.by_tokens["o_proj"].at(20.0) == pytest.approx(1.2e-6)
    at = times.attention.at
    assert at(32, 48, 0, 0.0) == pytest.approx(12e-6), "between two contexts"
    assert at(32, 0, 0, 0.0) == pytest.approx(1.32e-6), "no context: the layer's own row"
    assert at(0, 0, 4, 48.0) == pytest.approx(12e-6)
    assert at(32, 64, 4, 48.0) == pytest.approx(14e-6 + 12e-6)
    assert at(0, 0, 4, np.array([32.0, 64.0])) == pytest.approx(np.array([8e-6, 16e-6]))
    assert times.attention.longest == (64, 64) and times.attention.counts == (1, 4)


def test_beyond_the_last_token_times_go_on_as_over_an_eighth_of_the_curve(tmp_path: Path) -> None:
    """One wrong last figure of 2,000 tokens would be carried on 2,000 times."""
    dense = layers(2000).replace("o_proj,1999,0,2,20990", "o_proj,1999,0,2,99999")
    times = open_profiles(write(tmp_path, dense))
    assert times.by_tokens["o_proj"].at(4000.0) == pytest.approx(41e-6)


def test_a_line_that_falls_ends_at_nothing(tmp_path: Path) -> None:
    falling = tuple(row.replace("0.016", "0.001") for row in ROWS)
    times = open_profiles(write(tmp_path, layers(), falling))
    assert times.attention.at(0, 0, 4, 10_000.0) == 0
    assert times.attention.at(0, 0, 4, np.array([32.0, 1e4])) == pytest.approx(np.array([8e-6, 0]))


@pytest.mark.parametrize(
    ("dense", "attention", "complaint"),
    [
        (layers().replace("o_proj", "other"), ROWS, "has no layer o_proj"),
        (layers(ranks=4), ROWS, r"measured on 2 devices, layers.csv on 4"),
        (layers(), (*ROWS, ",,2,1,0,96,False"), "line 9"),
        (layers(), (*ROWS, ",0.1,2,1,0,96,maybe"), "True or False"),
        (layers().replace("o_proj,3,0,2,1030", "o_proj,3,0,2,fast"), ROWS, "'fast' is not a number"),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, dense: str, attention: tuple[str, ...], complaint: str
) -> None:
    with pytest.raises(BadInput, match=complaint):
        open_profiles(write(tmp_path, dense, attention))


def test_the_recorded_profile_of_70b_on_four_h100(shared_data: Path) -> None:
    times = open_profiles(shared_data / "serving/llmservingsim/v0_H100_llama31_70b_tp4")
    assert isinstance(times, LayerTimes) and times.ranks == 4
    assert times.by_tokens["q_proj"].at(1.0) == pytest.approx(16_243e-9)
    assert times.attention.at(128, 384, 0, 0.0) == pytest.approx(14.4e-6)
    assert times.attention.at(0, 0, 1, 65_536.0) > times.attention.at(0, 0, 1, 32.0) > 0
