"""Messages one by one and added up, and the trace that they make: two stages on two nodes, numbers worked out
by hand.
"""

from __future__ import annotations

from collections import Counter

import pytest

from experiments.core.spec import load_spec
from experiments.core.trace_events import trace
from experiments.hardware import Link
from experiments.parallel.policies.data_parallel import DataParallel
from experiments.parallel.policies.gpipe import GPipe
from experiments.parallel.simulator import simulate_with_traffic, traffic
from experiments.run import run
from tests.experiments.parallel.builders import chain, cluster, estimate


def gpipe() -> tuple[list[traffic.NetworkTransfer], float]:
    """F takes 1 s, B 2 s; 10 bytes take 0.5 s over the network."""
    model, hardware = chain(2, output_bytes=10.0), cluster(2, 1, network=Link("net", 20.0, 0.0, True, "test"))
    asked = estimate(model, hardware)
    simulation, found = simulate_with_traffic(GPipe(micro_batches=2).place(model, hardware, 2, asked), asked)
    return found, simulation.step_time


def test_activations_go_forward_and_gradients_back() -> None:
    found, step_time = gpipe()
    told = [(one.about, one.start, one.end, one.workers, one.target) for one in found]
    assert told == [
        ("F0.0 to stage 1", 1.0, 1.5, (0,), 1),
        ("F1.0 to stage 1", 2.0, 2.5, (0,), 1),
        ("B1.1 to stage 0", 5.5, 6.0, (1,), 0),
        ("B0.1 to stage 0", 7.5, 8.0, (1,), 0),
    ]
    assert step_time == 10.0
    assert traffic.totals(found) == [
        {"kind": "send", "way": "between nodes", "messages": 4, "bytes": 40.0, "seconds": 2.0}
    ]


def test_columns_keep_the_longest_messages_of_the_kept_lanes() -> None:
    found, _ = gpipe()
    columns = traffic.columns(found, [1], 3)
    assert (columns["of"], len(columns["start"])) == (4, 3)
    assert columns["workers"] == [[], [], [1]]
    assert traffic.columns(found, [], 3)["start"] == []


def test_a_collective_counts_every_sender_and_names_its_bucket() -> None:
    model, hardware = chain(1, parameter_bytes=8.0), cluster(1, 4)
    asked = estimate(model, hardware)
    _, (reduced,) = simulate_with_traffic(DataParallel().place(model, hardware, 4, asked), asked)
    assert (reduced.kind, reduced.about, reduced.workers) == ("all_reduce", "stage 0, bucket 0", (0, 1, 2, 3))
    (row,) = traffic.totals([reduced])
    assert (row["way"], row["bytes"]) == ("inside nodes", 4 * 8.0)


@pytest.mark.torch
def test_the_trace_has_a_process_for_each_node_and_an_arrow_for_each_message_between_slots() -> None:
    spec = {
        "family": "parallel", "policy": "gpipe", "knobs": {"micro_batches": 2},
        "workload": {"source": "zoo:mlp", "options": {"batch": 4}},
        "hardware": {"cluster": {"nodes": 2, "devices_per_node": 1, "device": "a100-40g"}},
    }  # fmt: skip
    outcome = run(load_spec(spec)).to_json()
    events = trace(outcome)["traceEvents"]
    named = [event["args"]["name"] for event in events if event["ph"] == "M"]
    assert named == ["node 0", "device 0", "node 1", "device 1"]
    counts = Counter(event["ph"] for event in events)
    assert counts["s"] == counts["f"] == counts["b"] == counts["e"] == 4
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert all({starts[i]["pid"], ends[i]["pid"]} == {1, 2} for i in starts)
    assert all(starts[i]["ts"] < ends[i]["ts"] for i in starts)
    assert [event["ts"] for event in events if event["ph"] != "M"] == sorted(
        event["ts"] for event in events if event["ph"] != "M"
    )
    counted = outcome["plan"]["communication_by_worker"]
    total = sum(row["bytes"] for row in outcome["plan"]["timeline"]["communication"])
    assert total == pytest.approx(sum(sum(kinds.values()) for kinds in counted))
