"""The RunSpec's hardware field: each of its forms, each override, and what is said about a wrong one."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import hardware
from experiments.core.errors import BadInput


def test_a_name_is_one_device_in_the_machine_it_usually_sits_in():
    one = hardware.resolve("a100-80g")
    assert (one.device_count, one.node_count, one.name) == (1, 1, "a100-80g")
    assert one.node.host.memory_bytes == 512 * 2**30
    assert one.node.storage.name == "nvme-gen4"
    assert one.network.name == "ib-200g"


def test_overrides_change_the_named_figures_and_nothing_else():
    overrides = {"memory_bytes": 12e9, "host_link_bandwidth": 12e9}
    changed, sheet = (
        hardware.resolve({"device": "a100-80g", "overrides": overrides}),
        hardware.resolve("a100-80g"),
    )
    assert (changed.device.memory_bytes, sheet.device.memory_bytes) == (12_000_000_000, 80 * 2**30)
    assert (changed.device.host_link.bandwidth, sheet.device.host_link.bandwidth) == (12e9, 31.508e9)
    assert changed.device.host_link.latency == sheet.device.host_link.latency
    assert changed.node.host == sheet.node.host
    assert changed.device.peak_flops == sheet.device.peak_flops
    assert changed.name == "a100-80g with host_link_bandwidth=1.2e+10, memory_bytes=1.2e+10"
    assert changed.device.source.endswith("overridden in the spec: host_link_bandwidth, memory_bytes")


FIGURES = {
    "memory_bytes": lambda node: node.device.memory_bytes,
    "memory_bandwidth": lambda node: node.device.memory_bandwidth,
    "peak_flops": lambda node: node.device.peak("float16"),
    "host_link_bandwidth": lambda node: node.device.host_link.bandwidth,
    "host_link_latency": lambda node: node.device.host_link.latency,
    "host_memory_bytes": lambda node: node.host.memory_bytes,
    "storage_read_bandwidth": lambda node: node.storage.read_bandwidth,
    "storage_write_bandwidth": lambda node: node.storage.write_bandwidth,
    "storage_latency": lambda node: node.storage.latency,
    "storage_bytes": lambda node: node.storage.capacity_bytes,
}


def test_the_override_names_are_those_of_the_contract():
    assert set(hardware.OVERRIDES) == set(FIGURES)


@given(st.sampled_from(sorted(FIGURES)), st.integers(1, 10**15))
def test_every_override_lands_in_its_figure_alone(name, value):
    before = hardware.resolve("v100-32g").node
    after = hardware.resolve({"device": "v100-32g", "overrides": {name: value}}).node
    assert FIGURES[name](after) == value
    others = [other for other in FIGURES if other != name]
    assert [FIGURES[other](after) for other in others] == [FIGURES[other](before) for other in others]


@pytest.mark.parametrize("name", ["host_memory_bytes", "storage_bytes"])
def test_a_machine_may_lack_host_memory_or_storage_and_nothing_else(name):
    node = hardware.resolve({"device": "v100-32g", "overrides": {name: 0}}).node
    assert FIGURES[name](node) == 0
    with pytest.raises(BadInput, match=f"{name}: -1 is not usable .*or 0"):
        hardware.resolve({"device": "v100-32g", "overrides": {name: -1}})
    with pytest.raises(BadInput, match="memory_bytes: 0 is not usable"):
        hardware.resolve({"device": "v100-32g", "overrides": {"memory_bytes": 0}})


def test_a_cluster_is_what_its_five_fields_say():
    cluster = hardware.resolve(
        {
            "cluster": {
                "nodes": 16,
                "devices_per_node": 4,
                "device": "t4",
                "node_link": "nvlink-v100",
                "network": "ib-100g",
            }
        }
    )
    assert (cluster.node_count, cluster.device_count, len(cluster.nodes)) == (16, 64, 16)
    assert cluster.device.name == "t4-16g"
    assert (cluster.node.link.name, cluster.network.name) == ("nvlink-v100", "ib-100g")
    assert cluster.name == "16x4 t4-16g"
    assert json.loads(json.dumps(cluster.to_json()))["groups"][0]["node"]["device_count"] == 4


def test_eight_adapters_carry_eight_times_as_much():
    cluster = hardware.resolve(
        {
            "cluster": {
                "nodes": 2,
                "devices_per_node": 8,
                "device": "a100-80g",
                "network": "ib-200g",
                "nics_per_node": 8,
            }
        }
    )
    assert (cluster.network.name, cluster.network.bandwidth) == ("8 x ib-200g", 200e9)


def test_a_list_is_a_mixed_cluster_on_the_slowest_of_the_usual_networks():
    mixed = hardware.resolve(
        [
            {"nodes": 2, "devices_per_node": 4, "device": "v100"},
            {"nodes": 3, "devices_per_node": 2, "device": "k80"},
        ]
    )
    assert [node.device.name for node in mixed.nodes] == ["v100-16g"] * 2 + ["k80-12g"] * 3
    assert mixed.device_count == 14
    assert mixed.network.name == "eth-10g"
    assert mixed.name == "2x4 v100-16g + 3x2 k80-12g"


def test_a_network_named_once_holds_for_all_groups_and_of_two_the_slower_joins_them():
    named = [{"nodes": 2, "device": "v100", "network": "ib-400g"}, {"nodes": 3, "device": "k80"}]
    assert hardware.resolve(named).network.name == "ib-400g"
    named[1]["network"] = "eth-1g"
    mixed = hardware.resolve(named)
    assert mixed.network.name == "eth-1g"
    assert [node.network and node.network.name for node in mixed.nodes] == ["ib-400g"] * 2 + [None] * 3
    assert mixed.to_json()["groups"][0]["node"]["network"]["bandwidth"] == 50e9


def test_host_and_storage_may_be_named():
    machine = hardware.resolve({"device": "titan-x", "host": "ddr5", "storage": "optane-pmem"})
    assert (machine.node.host.name, machine.node.storage.name) == ("ddr5-server", "optane-pmem")


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("a100-80gb", "spec.hardware.device: 'a100-80gb' is not a device sheet (expected one of a100-80g, "),
        ("", "spec.hardware.device: '' is not a device sheet"),
        ([], "spec.hardware: [] is not hardware"),
        (7, "spec.hardware: 7 is not hardware"),
        ({}, "spec.hardware: field 'device' is missing"),
        ({"device": None}, "spec.hardware.device: None is not a device sheet"),
        ({"device": "t4", "color": 1}, "spec.hardware: unknown field 'color'"),
        ({"device": "t4", "overrides": {"memory": 1}}, "spec.hardware.overrides: unknown override 'memory'"),
        ({"device": "t4", "overrides": [1]}, "spec.hardware.overrides: [1] is not an object"),
        (
            {"device": "t4", "overrides": {"peak_flops": 0}},
            "spec.hardware.overrides.peak_flops: 0 is not usable",
        ),
        (
            {"device": "t4", "overrides": {"peak_flops": True}},
            "spec.hardware.overrides.peak_flops: True is not",
        ),
        (
            {"device": "t4", "overrides": {"peak_flops": "9"}},
            "spec.hardware.overrides.peak_flops: '9' is not",
        ),
        (
            {"device": "t4", "overrides": {"peak_flops": math.nan}},
            "spec.hardware.overrides.peak_flops: nan is not",
        ),
        (
            {"device": "t4", "overrides": {"peak_flops": math.inf}},
            "spec.hardware.overrides.peak_flops: inf is not",
        ),
        ({"device": "t4", "overrides": {"peak_flops": 10**400}}, "spec.hardware.overrides.peak_flops: 1000"),
        (
            {"device": "t4", "overrides": {"memory_bytes": 0.5}},
            "spec.hardware.overrides.memory_bytes: 0.5 is not",
        ),
        ({"cluster": 3}, "spec.hardware.cluster: 3 is not an object"),
        ({"cluster": {"device": "t4"}}, "spec.hardware.cluster: field 'nodes' is missing"),
        ({"cluster": {"device": "t4", "nodes": 0}}, "spec.hardware.cluster: nodes = 0"),
        ({"cluster": {"device": "t4", "nodes": 2.0}}, "spec.hardware.cluster: nodes = 2.0"),
        ({"cluster": {"device": "t4", "nodes": 10**9}}, "spec.hardware.cluster: nodes = 1000000000"),
        (
            {"cluster": {"device": "t4", "nodes": 1, "network": "ib-300g"}},
            "spec.hardware.cluster.network: 'ib-300g'",
        ),
        ([{"nodes": 1, "device": "t4"}, {"nodes": 1, "device": "t5"}], "spec.hardware[1].device: 't5'"),
    ],
)
def test_a_wrong_spec_is_answered_with_place_value_and_expectation(spec, complaint):
    with pytest.raises(BadInput) as error:
        hardware.resolve(spec)
    assert str(error.value).startswith(complaint)
    assert error.value.expected


def test_the_nearest_names_are_offered():
    with pytest.raises(BadInput, match="host_link_bandwidth"):
        hardware.resolve({"device": "t4", "overrides": {"host_bandwidth": 1e9}})


RAILED = {"device": "t4", "nodes": 4, "devices_per_node": 8}


@pytest.mark.parametrize(
    ("fabric", "complaint"),
    [
        ({"rails": 3}, "spec.hardware.cluster.rails: 8 devices of a node do not share 3 rails equally"),
        ({"rails": 0}, "spec.hardware.cluster: rails = 0"),
        (
            {"rails": 2, "nics_per_node": 2},
            'spec.hardware.cluster: "rails" and "nics_per_node" are both given',
        ),
        ({"switch": 4}, "spec.hardware.cluster.switch: 4 is not an object"),
        ({"switch": {}}, "spec.hardware.cluster.switch: field 'nodes' is missing"),
        ({"switch": {"nodes": 0}}, "spec.hardware.cluster.switch: nodes = 0"),
        ({"switch": {"nodes": 2, "oversubscription": 0}}, "spec.hardware.cluster.switch: 0 is not usable"),
        ({"switch": {"nodes": 2, "taper": 2}}, "spec.hardware.cluster.switch: unknown field 'taper'"),
        ({"stragglers": {"32": 2}}, "spec.hardware.cluster.stragglers: '32' is no device"),
        ({"stragglers": {"1": -1}}, "spec.hardware.cluster.stragglers: -1 is not usable"),
        ({"stragglers": [1]}, "spec.hardware.cluster.stragglers: [1] is not an object"),
    ],
)
def test_a_network_that_cannot_be_is_refused(fabric, complaint):
    with pytest.raises(BadInput) as error:
        hardware.resolve({"cluster": {**RAILED, **fabric}})
    assert str(error.value).startswith(complaint)


def test_groups_share_as_many_rails_as_they_have_in_common():
    """8 and 4 adapters: 4 rails, of two adapters each in the first group; without rails, one."""
    eight, four = {**RAILED, "rails": 8, "network": "ib-200g"}, {**RAILED, "rails": 4, "network": "ib-200g"}
    mixed = hardware.resolve([eight, four])
    assert (mixed.rails, mixed.network.bandwidth, mixed.node.network.bandwidth) == (4, 100e9, 200e9)
    assert hardware.resolve([four, {**RAILED, "network": "ib-200g"}]).rails == 1
    with pytest.raises(BadInput, match="the groups differ in 'switch'"):
        hardware.resolve([{**four, "switch": {"nodes": 2}}, four])
