"""Published machines by name: what their sheets say, what a spec may change, what is assumed without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments import hardware
from experiments.core.errors import BadInput
from experiments.hardware import Hardware, library, resolve
from experiments.hardware.algorithms import Algorithms

GIB = 2**30
#: Node, device, devices, adapters, GB/s of all adapters together (published Gb/s / 8), host memory in GiB.
MACHINES = [
    ("dgx-1-v100", "v100-32g", 8, 4, 50, 512),
    ("dgx-1-v100-16g", "v100-16g", 8, 4, 50, 512),
    ("dgx-2", "v100-32g", 16, 8, 100, 1536),
    ("dgx-a100", "a100-80g", 8, 8, 200, 2048),
    ("dgx-a100-40g", "a100-40g", 8, 8, 200, 1024),
    ("dgx-h100", "h100-80g", 8, 8, 400, 2048),
    ("dgx-h200", "h200-141g", 8, 8, 400, 2048),
    ("dgx-b200", "b200-180g", 8, 8, 400, 2048),
    ("gb200-nvl72", "gb200-186g", 72, 72, 3600, None),
    ("p3-16xlarge", "v100-16g", 8, 1, 3.125, 488),
    ("p3dn", "v100-32g", 8, 1, 12.5, 768),
    ("p4d", "a100-40g", 8, 4, 50, 1152),
    ("p4de", "a100-80g", 8, 4, 50, 1152),
    ("p5", "h100-80g", 8, 8, 400, 2048),
    ("p5e", "h200-141g", 8, 8, 400, 2048),
    ("nd-a100-v4", "a100-40g", 8, 8, 200, 900),
    ("ndm-a100-v4", "a100-80g", 8, 8, 200, 1900),
    ("nd-h100-v5", "h100-80g", 8, 8, 400, 1900),
    ("a2-highgpu-8g", "a100-40g", 8, 1, 12.5, 680),
    ("a2-ultragpu-8g", "a100-80g", 8, 1, 12.5, 1360),
    ("a3-highgpu-8g", "h100-80g", 8, 4, 100, 1872),
    ("a3-megagpu-8g", "h100-80g", 8, 8, 200, 1872),
    ("a3-ultragpu-8g", "h200-141g", 8, 8, 400, 2952),
    ("grand-teton-h100", "h100-80g", 8, 8, 400, 2048),
]
#: The same parts by hand: what a DGX A100 is to collectives.
PARTS = {"nodes": 2, "devices_per_node": 8, "device": "a100-80g", "rails": 8, "network": "ib-200g"}


def ring(cluster: Hardware, size: float, devices: range | None = None) -> float:
    """Seconds of a ring all-reduce of ``size`` bytes over all devices."""
    ranks = tuple(devices or range(cluster.device_count))
    cost = Algorithms(cluster).cost("all_reduce", (ranks,), "ring")
    assert cost is not None
    return cost.seconds(size)


@pytest.mark.parametrize(("name", "device", "devices", "adapters", "gbps", "gib"), MACHINES)
def test_a_machine_is_what_its_maker_publishes(
    name: str, device: str, devices: int, adapters: int, gbps: float, gib: int | None
) -> None:
    one = resolve(name)
    assert (one.name, one.device.name, one.device_count) == (f"1x {name}", device, devices)
    assert (one.rails, one.network.bandwidth) == (adapters, gbps * 1e9)
    assert gib is None or one.node.host.memory_bytes == gib * GIB
    assert one.warnings == ()


def test_every_machine_is_here_and_no_name_of_one_is_a_devices() -> None:
    assert {row[0] for row in MACHINES} == set(hardware.names("node"))
    rows = [row for row in hardware.catalog() if row["kind"] == "node"]
    called = {name for row in rows for name in (row["name"], *row["aliases"])}
    assert not any(library.knows("device", name) for name in called)


def test_the_list_says_what_a_machine_has_in_all() -> None:
    (row,) = (row for row in hardware.catalog() if row["name"] == "p4d" and row["kind"] == "node")
    assert (row["memory_bytes"], row["network_bandwidth"]) == (8 * 40 * GIB, 4 * 12.5e9)
    assert (row["node_link"], row["host_link"], row["storage"]) == ("nvlink-a100", "pcie3-x16", "nvme-gen4")


def test_a_rack_of_72_is_one_node_and_each_device_shares_its_way_to_the_processor() -> None:
    rack = resolve({"nodes": 2, "node": "gb200-nvl72"})
    assert (rack.node_count, rack.device_count, rack.node.link.bandwidth) == (2, 144, 900e9)
    assert rack.device.host_link.bandwidth == 2 * resolve("gb200").device.host_link.bandwidth / 2 == 225e9
    share = rack.device.kernels.collective_efficiency
    inside, across = ring(rack, 1e9, range(72)), ring(rack, 1e9)
    assert inside == pytest.approx(2 * 71 * 3.4e-6 + 2 * 71 / 72 * 1e9 / (900e9 * share))
    assert across > inside


def test_a_spec_names_a_node_in_four_ways() -> None:
    plain = resolve({"nodes": 128, "node": "dgx-a100"})
    assert (plain.name, plain.node_count, plain.device_count) == ("128x dgx-a100", 128, 1024)
    assert resolve({"cluster": {"nodes": 128, "node": "dgx-a100-80g"}}) == plain
    assert resolve([{"nodes": 128, "node": "dgx-a100"}]) == plain
    assert resolve("dgx-a100") == resolve({"node": "dgx-a100"})
    said = plain.to_json()["groups"][0]["node"]
    assert said["name"] == "dgx-a100" and "8 ConnectX-6" in said["source"]


def ring_form(bandwidth: float, ranks: int, size: float, nodes: int = 2) -> float:
    """2(m-1) starts of 14 us between m nodes, 2(n-m) of 6 us in them (AMD), and 2(n-1)/n of the vector."""
    starts = 2 * (nodes - 1) * 14e-6 + 2 * (ranks - nodes) * 6e-6
    return starts + 2 * (ranks - 1) / ranks * size / bandwidth


def test_a_ring_over_two_nodes_uses_all_eight_adapters() -> None:
    """8 adapters of 25 GB/s, of which 85 % are reached: less than collectives reach of NVLink's 300 GB/s."""
    pair, parts = resolve({"nodes": 2, "node": "dgx-a100"}), resolve({"cluster": PARTS})
    adapters = 8 * 25e9 * 0.85
    assert adapters < 300e9 * pair.device.kernels.collective_efficiency
    assert ring(pair, 4e9) == ring(parts, 4e9) == pytest.approx(ring_form(adapters, 16, 4e9))
    wider = resolve({"nodes": 2, "node": "dgx-a100", "node_link": "nvlink-b200"})
    assert ring(wider, 4e9) == pytest.approx(ring_form(8 * 25e9 * 0.85, 16, 4e9))
    alone = resolve({"cluster": {**PARTS, "rails": 1}})
    assert ring(alone, 4e9) == pytest.approx(ring_form(25e9 * 0.85, 16, 4e9))


def test_jean_zay_reduces_as_fast_as_bigscience_measured_it() -> None:
    """4 GB on 4 nodes of 8 A100 and 4 Omni-Path links: 40.5 Gb/s of 400, as bus bandwidth."""
    parts = {"nodes": 4, "devices_per_node": 8, "device": "a100-80g", "rails": 4, "network": "opa-jean-zay"}
    seconds = ring(resolve({"cluster": parts}), 4e9)
    assert 2 * 31 / 32 * 4e9 / seconds * 8 == pytest.approx(40.5e9, rel=0.01)


CHANGES: list[tuple[dict[str, Any], Any, Any]] = [
    ({"network": "ib-400g"}, lambda c: (c.rails, c.network.bandwidth), (8, 400e9)),
    ({"rails": 4}, lambda c: (c.rails, c.network.bandwidth), (4, 100e9)),
    ({"nics_per_node": 4}, lambda c: (c.rails, c.network.bandwidth), (1, 100e9)),
    ({"node_link": "nvlink-h100"}, lambda c: c.node.link.name, "nvlink-h100"),
    ({"host_link": "pcie5-x16"}, lambda c: c.device.host_link.name, "pcie5-x16"),
    ({"host": "ddr5"}, lambda c: c.node.host.name, "ddr5-server"),
    ({"storage": "optane-ssd"}, lambda c: c.node.storage.name, "optane-ssd"),
    ({"remote": "cxl"}, lambda c: c.node.remote and c.node.remote.name, "cxl-expander"),
    ({"overrides": {"memory_bytes": 12e9}}, lambda c: c.device.memory_bytes, 12_000_000_000),
    ({"overrides": {"host_link_bandwidth": 1e9}}, lambda c: c.device.host_link.bandwidth, 1e9),
    ({"switch": {"nodes": 2}}, lambda c: c.switch and c.switch.nodes, 2),
    ({"stragglers": {"3": 2}}, lambda c: c.stragglers, ((3, 2.0),)),
    ({"device": "a100-80g-sxm"}, lambda c: c.name, "2x dgx-a100"),
]


@pytest.mark.parametrize(("change", "figure", "expected"), CHANGES, ids=[str(row[0]) for row in CHANGES])
def test_what_stands_beside_a_node_is_taken_instead(
    change: dict[str, Any], figure: Any, expected: Any
) -> None:
    before = figure(resolve({"nodes": 2, "node": "dgx-a100"}))
    assert (before == expected) == ("device" in change)
    assert figure(resolve({"nodes": 2, "node": "dgx-a100", **change})) == expected


@pytest.mark.parametrize(
    ("name", "devices", "rails"), [("dgx-a100", 4, 4), ("p4d", 4, 2), ("p4d", 1, 1), ("dgx-2", 2, 1)]
)
def test_fewer_devices_use_their_own_adapters(name: str, devices: int, rails: int) -> None:
    part, one = resolve({"nodes": 2, "node": name, "devices_per_node": devices}), resolve(name)
    assert (part.name, part.rails) == (f"2x {name} of {devices}", rails)
    assert part.network.bandwidth == rails * one.network.bandwidth / one.rails


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (
            {"node": "dgx-a1000"},
            "spec.hardware.cluster.node: 'dgx-a1000' is not a node sheet (expected one",
        ),
        ({"node": 7}, "spec.hardware.cluster.node: 7 is not a node sheet"),
        ({"node": "p4d", "device": "h100"}, "spec.hardware.cluster.device: a p4d has a100-40g, not h100-80g"),
        ({"node": "p4d", "device": "a101"}, "spec.hardware.cluster.device: 'a101' is not a device sheet"),
        ({"node": "p4d", "devices_per_node": 9}, "spec.hardware.cluster: devices_per_node = 9"),
        ({"node": "p4d", "devices_per_node": 5}, "spec.hardware.cluster.rails: 5 devices of a node do not"),
        ({"node": "p4d", "rails": 2, "nics_per_node": 2}, 'spec.hardware.cluster: "rails" and "nics_per_'),
        ({"node": "p4d", "host_link": "pcie9"}, "spec.hardware.cluster.host_link: 'pcie9' is not a link"),
        ({"node": "p4d", "color": 1}, "spec.hardware.cluster: unknown field 'color'"),
        ({"node": "p4d", "nodes": 0}, "spec.hardware.cluster: nodes = 0"),
    ],
)
def test_a_node_that_cannot_be_is_refused(row: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadInput) as error:
        resolve({"cluster": {"nodes": 2, **row}})
    assert str(error.value).startswith(complaint)


def test_an_unknown_node_is_answered_with_the_names() -> None:
    with pytest.raises(BadInput) as error:
        resolve({"nodes": 2, "node": "my-own-box"})
    assert all(name in error.value.expected for name in hardware.names("node"))


# --- what is assumed ----------------------------------------------------------------------------------------

EIGHT = {"nodes": 2, "devices_per_node": 8, "device": "a100-80g"}


def test_several_nodes_that_say_nothing_of_adapters_are_told_what_is_assumed() -> None:
    (warning,) = resolve({"cluster": EIGHT}).warnings
    assert warning.startswith("assumed of each node: one adapter, ib-200g (25 GB/s), for its 8 a100-80g; ")
    assert "dgx-a100, " in warning and '"rails" or "nics_per_node"' in warning
    (named,) = resolve({"cluster": {**EIGHT, "network": "ib-400g"}}).warnings
    assert "one adapter, ib-400g (50 GB/s)" in named


@pytest.mark.parametrize(
    "change",
    [
        {"nodes": 1},
        {"rails": 8},
        {"nics_per_node": 1},
        {"network": {"bandwidth": 25e9, "latency": 1e-5}},
        {"network": "ib-200g", "devices_per_node": 1},
    ],
)
def test_nothing_is_assumed_where_adapters_are_known_or_not_used(change: dict[str, Any]) -> None:
    assert resolve({"cluster": {**EIGHT, **change}}).warnings == ()


def test_each_kind_of_node_in_a_mixed_cluster_is_told_once() -> None:
    quiet = {"nodes": 1, "node": "p4d"}
    assert len(resolve([EIGHT, EIGHT, {**EIGHT, "device": "v100"}, quiet]).warnings) == 2
    assert len(resolve([{**EIGHT, "nodes": 1}, quiet]).warnings) == 1, "two nodes in all"


# --- groups of different networks ---------------------------------------------------------------------------

FAST = {"nodes": 2, "devices_per_node": 1, "device": "t4", "network": "ib-400g"}
SLOW = {**FAST, "network": "eth-1g"}


def test_groups_meet_at_the_slower_network_and_keep_their_own_inside() -> None:
    """T4s have no kernel rates, so that links reach their line rates: 2(n-1) (alpha + x beta / n)."""
    mixed = resolve([FAST, SLOW])
    assert ring(mixed, 1e9, range(2)) == pytest.approx(2 * 14e-6 + 1e9 / 50e9)
    assert ring(mixed, 1e9, range(2, 4)) == pytest.approx(2 * 50e-6 + 1e9 / 0.125e9)
    assert ring(mixed, 1e9) == pytest.approx(6 * 50e-6 + 2 * 3 / 4 * 1e9 / 0.125e9)
    assert ring(mixed, 1e9) == ring(resolve({**SLOW, "nodes": 4}), 1e9)
    there = Algorithms(mixed).sends((0,), (2,)).seconds(1e9)
    assert there == Algorithms(mixed).sends((2,), (0,)).seconds(1e9) == pytest.approx(50e-6 + 1e9 / 0.125e9)
    assert Algorithms(mixed).sends((0,), (1,)).seconds(1e9) == pytest.approx(14e-6 + 1e9 / 50e9)


def test_machines_of_different_adapters_meet_on_the_rails_they_share() -> None:
    """A p4d is reached with its 4 adapters of 12.5 GB/s; two DGX A100 have all of their own."""
    mixed = resolve([{"nodes": 2, "node": "dgx-a100-40g"}, {"nodes": 2, "node": "p4d"}])
    assert (mixed.name, mixed.rails, mixed.network.name) == ("2x dgx-a100-40g + 2x p4d", 4, "4 x efa-100g")
    assert ring(mixed, 4e9) == pytest.approx(ring_form(4 * 12.5e9 * 0.85, 32, 4e9, nodes=4))
    inside = resolve({"nodes": 2, "node": "dgx-a100-40g"})
    assert ring(mixed, 4e9, range(16)) == pytest.approx(ring(inside, 4e9))


#: Pairs of devices that send to each other at once: both fast, both slow, one of each.
PAIRS = {"duplex": (0, 1), "half": (2, 3), "mixed": (0, 2)}


def test_a_half_duplex_network_of_one_group_counts_both_ways_there_alone() -> None:
    """10 bytes to and fro: 1 s on the duplex nodes' own, 2 s among those whose ways are one."""
    link = {"bandwidth": 10.0, "latency": 0.0}
    half = {**FAST, "network": {**link, "duplex": False}}
    mixed = Algorithms(resolve([{**FAST, "network": link}, half]))
    both = {name: mixed.sends(pair, pair[::-1]).seconds(10.0) for name, pair in PAIRS.items()}
    assert both == {"duplex": 1.0, "half": 2.0, "mixed": 2.0}


def test_uplinks_of_a_leaf_carry_what_its_nodes_send() -> None:
    """Leaves of two nodes: the fast leaf has 100 GB/s up, the slow one 0.25, half of it with a taper of 2."""
    switch = {"switch": {"nodes": 2, "oversubscription": 2.0}}
    mixed = Algorithms(resolve([{**FAST, **switch}, {**SLOW, **switch}]))
    across = mixed.sends((0, 1), (2, 3)).seconds(1e9)
    assert across == pytest.approx(50e-6 + 2e9 / (2 * 0.125e9 / 2))


def test_a_machines_own_adapters_are_not_lent_to_other_groups() -> None:
    mixed = resolve([{"nodes": 1, "node": "dgx-a100"}, {"nodes": 1, "devices_per_node": 8, "device": "v100"}])
    assert [(n.network or mixed.network).name for n in mixed.nodes] == ["8 x ib-200g", "ib-100g"]


# --- sheets that are wrong ----------------------------------------------------------------------------------

NODE = 'device = "t4-16g"\ndevices_per_node = 8\nnetwork = "eth-25g"\nrails = 4\nhost = "ddr4-server"\n'


@pytest.mark.parametrize(
    ("right", "wrong", "complaint"),
    [
        ("t4-16g", "t5", "node.box.device: 't5' is not a sheet"),
        ("eth-25g", "eth-26g", "node.box.network: 'eth-26g' is not a sheet"),
        ("ddr4-server", "ddr6", "node.box.host: 'ddr6' is not a sheet"),
        ("rails = 4", "rails = 3", "node.box: rails = 3"),
        ("rails = 4\n", "", "node.box: field 'rails' is missing"),
        ("rails = 4", "rails = 4\nwheels = 4", "node.box: unknown field 'wheels'"),
    ],
)
def test_a_wrong_node_is_refused_by_field(tmp_path: Path, right: str, wrong: str, complaint: str) -> None:
    for path in library.SHEETS.glob("*.toml"):
        if path.name != "nodes.toml":
            (tmp_path / path.name).write_text(path.read_text())
    text = f'[node.box]\n{NODE}source = "a data sheet"\n'
    (tmp_path / "boxes.toml").write_text(text.replace(right, wrong))
    with pytest.raises(BadInput) as error:
        library.read_sheets(tmp_path)
    assert str(error.value).startswith(complaint)
