"""The spec sheets say what their sources say, and a sheet that is wrong cannot be loaded."""

from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import hardware
from experiments.core.errors import BadInput
from experiments.hardware import library
from experiments.hardware.parts import Peaks

GIB = 2**30

DEVICES = [
    # name, memory GiB, memory GB/s, float32 TFLOP/s, float16 TFLOP/s, host link
    ("titan-x-12g", 12, 336.5, 6.605, 6.605, "pcie3-x16"),
    ("k40-12g", 12, 288, 4.29, 4.29, "pcie3-x16"),
    ("k80-12g", 12, 240, 4.37, 4.37, "pcie3-x16"),
    ("p100-16g", 16, 732, 10.6, 21.2, "pcie3-x16"),
    ("v100-16g", 16, 900, 15.7, 125, "pcie3-x16"),
    ("v100-32g", 32, 900, 15.7, 125, "pcie3-x16"),
    ("t4-16g", 16, 320, 8.1, 65, "pcie3-x16"),
    ("a100-40g", 40, 1555, 19.5, 312, "pcie4-x16"),
    ("a100-40g-pcie", 40, 1555, 19.5, 312, "pcie4-x16"),
    ("a100-80g", 80, 2039, 19.5, 312, "pcie4-x16"),
    ("a100-80g-pcie", 80, 1935, 19.5, 312, "pcie4-x16"),
    ("h100-80g", 80, 3350, 66.9, 989.4, "pcie5-x16"),
    ("h100-80g-pcie", 80, 2000, 51.2, 756, "pcie5-x16"),
    ("rtx-3080-10g", 10, 760, 29.8, 59.5, "pcie4-x16"),
    ("rtx-4090-24g", 24, 1008, 82.6, 165.2, "pcie4-x16"),
    ("tpu-v4", 32, 1200, 45.83, 45.83, "pcie3-x16"),
]


@pytest.mark.parametrize(("name", "gib", "gbps", "float32", "float16", "host_link"), DEVICES)
def test_a_device_has_the_figures_of_its_data_sheet(name, gib, gbps, float32, float16, host_link):
    device = hardware.resolve(name).device
    assert device.memory_bytes == gib * GIB
    assert device.memory_bandwidth == gbps * 1e9
    assert device.peak("float32") == pytest.approx(float32 * 1e12)
    assert device.peak("float16") == pytest.approx(float16 * 1e12)
    assert device.host_link.name == host_link


@pytest.mark.parametrize(
    ("name", "gigabytes_per_second"),
    [
        ("pcie3-x16", 15.754),
        ("pcie4-x16", 31.508),
        ("pcie5-x16", 63.015),
        ("nvlink-p100", 80),
        ("nvlink-v100", 150),
        ("nvlink-a100", 300),
        ("nvlink-h100", 450),
        ("ib-100g", 12.5),
        ("ib-200g", 25),
        ("ib-400g", 50),
        ("eth-1g", 0.125),
        ("eth-10g", 1.25),
        ("eth-25g", 3.125),
        ("eth-100g", 12.5),
    ],
)
def test_a_link_has_its_rate_per_direction(name, gigabytes_per_second):
    assert library.link(name, "test").bandwidth == gigabytes_per_second * 1e9


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("t4", "t4-16g"),
        ("v100", "v100-16g"),
        ("a100", "a100-40g"),
        ("h100", "h100-80g"),
        ("NVIDIA H200", "h200-141g"),
    ],
)
def test_a_short_name_or_a_drivers_product_name_leads_to_the_same_sheet(alias, name):
    assert hardware.resolve(alias) == hardware.resolve(name)


def test_every_sheet_is_in_the_catalog_with_its_source():
    rows = json.loads(json.dumps(hardware.catalog()))
    kinds = {"link", "host", "storage", "kernels", "units", "device", "node"}
    assert {row["kind"] for row in rows} == kinds
    assert {row["name"] for row in rows if row["kind"] == "device"} == set(hardware.names())
    assert all(len(row["source"]) > 15 for row in rows)
    assert {"optane-pmem", "optane-ssd", "nvme-gen3", "nvme-gen4"} <= set(hardware.names("storage"))


def test_a_type_without_its_own_arithmetic_runs_at_the_next_wider_types_rate():
    v100, h100 = hardware.resolve("v100").device, hardware.resolve("h100").device
    assert v100.peak("bfloat16") == v100.peak("float32") == 15.7e12
    assert h100.peak("float8") == pytest.approx(2 * h100.peak("float16"), rel=1e-3)
    assert hardware.resolve("a100-80g").device.peak("float8") == 312e12
    with pytest.raises(BadInput, match="v100-16g: no peak FLOP/s for dtype 'float7'"):
        v100.peak("float7")


def test_parts_are_frozen_hashable_and_survive_pickling():
    cluster = hardware.resolve({"cluster": {"nodes": 2, "device": "a100-80g"}})
    assert pickle.loads(pickle.dumps(cluster)) == cluster
    assert len({cluster, hardware.resolve({"cluster": {"nodes": 2, "device": "a100-80g"}})}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        cluster.device.memory_bytes = 0
    with pytest.raises(TypeError):
        cluster.device.peak_flops["float32"] = 0.0


@given(st.dictionaries(st.sampled_from(["float32", "float16", "int8"]), st.floats(1, 1e15), min_size=1))
def test_peaks_do_not_depend_on_the_order_they_were_written_in(peaks):
    backwards = dict(reversed(peaks.items()))
    assert Peaks(peaks) == Peaks(backwards) == peaks
    assert hash(Peaks(peaks)) == hash(Peaks(backwards))


LINK = '[link.wire]\nbandwidth = 1e9\nlatency = 1e-6\nduplex = true\nsource = "a data sheet"\n'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (LINK + "speed = 3\n", "link.wire: unknown field 'speed'"),
        (LINK.replace("latency = 1e-6\n", ""), "link.wire: field 'latency' is missing"),
        (LINK.replace("1e9", "-1e9"), "link.wire: bandwidth = -1000000000.0 is not positive"),
        (LINK.replace("1e9", '"fast"'), "link.wire: bandwidth = 'fast' is not a number"),
        (LINK.replace('"a data sheet"', '""'), "link.wire: source = '' is empty"),
        (LINK.replace("[link.", "[cable."), "sheets.toml: unknown kind of sheet 'cable'"),
        (
            LINK + 'aliases = ["rope"]\n' + LINK.replace("wire", "rope"),
            "link.wire: alias 'rope' already names a sheet",
        ),
    ],
)
def test_a_wrong_sheet_is_refused_by_field(tmp_path: Path, text, complaint):
    (tmp_path / "sheets.toml").write_text(text)
    with pytest.raises(BadInput) as error:
        library.read_sheets(tmp_path)
    assert str(error.value).startswith(complaint)


def test_a_device_is_refused_by_field_too(tmp_path: Path):
    sheets = (library.SHEETS / "devices.toml").read_text()
    for name in ("links", "hosts", "storage"):
        (tmp_path / f"{name}.toml").write_text((library.SHEETS / f"{name}.toml").read_text())
    for right, wrong, complaint in (
        (
            'peer_link = "nvlink-p100"',
            'peer_link = "nvlink-p10"',
            "device.p100-16g.peer_link: 'nvlink-p10' is not",
        ),
        ("float16 = 21.2e12", "float61 = 21.2e12", "device.p100-16g.peak_flops: unknown dtype 'float61'"),
        ("year = 2016", 'year = "2016"', "device.p100-16g: year = '2016' is not a number"),
    ):
        (tmp_path / "devices.toml").write_text(sheets.replace(right, wrong))
        with pytest.raises(BadInput) as error:
            library.read_sheets(tmp_path)
        assert str(error.value).startswith(complaint)


def test_the_same_name_in_two_files_is_refused(tmp_path: Path):
    (tmp_path / "a.toml").write_text(LINK)
    (tmp_path / "b.toml").write_text(LINK)
    with pytest.raises(BadInput, match=r"b\.toml: link 'wire' is described twice"):
        library.read_sheets(tmp_path)
