"""Our sheets beside those of two public performance models; differences are listed here with their reason."""

from __future__ import annotations

import json

import pytest

from experiments import hardware
from experiments.hardware import library

# Their file -> our sheet.
LLM_ANALYSIS = {
    "a100-pcie-40gb": "a100-40g-pcie",
    "a100-pcie-80gb": "a100-80g-pcie",
    "a100-sxm-40gb": "a100-40g",
    "a100-sxm-80gb": "a100-80g",
    "h100-pcie-80gb": "h100-80g-pcie",
    "h100-sxm-80gb": "h100-80g",
    "v100-sxm-16gb": "v100-16g",
    "v100-sxm-32gb": "v100-32g",
}
DIFFERENCES = {
    ("v100-sxm-16gb", "memory"): "their file of the 16 GB card says 32",
    ("a100-pcie-40gb", "peer"): "they assume the optional two-card NVLink bridge, we PCIe",
    ("a100-pcie-80gb", "peer"): "they assume the optional two-card NVLink bridge, we PCIe",
    ("h100-pcie-80gb", "peer"): "they assume the optional two-card NVLink bridge, we PCIe",
}


@pytest.mark.parametrize("theirs", sorted(LLM_ANALYSIS))
def test_llm_analysis_gives_the_same_figures(shared_data, theirs):
    sheet = json.loads((shared_data / "parallel/llm_analysis_gpu" / f"{theirs}.json").read_text())
    device = hardware.resolve(LLM_ANALYSIS[theirs]).device
    ours = {
        "memory": device.memory_bytes / 2**30,
        "bandwidth": device.memory_bandwidth / 1e9,
        "float16": device.peak("float16") / 1e12,
        "int8": device.peak("int8") / 1e12 if "int8" in device.peak_flops else 0,
        "peer": device.peer_link.bandwidth / 1e9,
    }
    expected = {
        "memory": sheet["mem_per_GPU_in_GB"],
        "bandwidth": sheet["hbm_bandwidth_in_GB_per_sec"],
        "float16": sheet["peak_fp16_TFLOPS"],
        "int8": sheet["peak_i8_TFLOPS"],
        "peer": sheet["intra_node_bandwidth_in_GB_per_sec"],
    }
    differing = {(theirs, name) for name in ours if ours[name] != pytest.approx(expected[name], rel=0.001)}
    assert differing == {key for key in DIFFERENCES if key[0] == theirs}


@pytest.mark.parametrize(
    ("theirs", "ours", "memory_bandwidth_tolerance"),
    # Calculon writes 2,048 and 3,072 GB/s where the data sheets have 2,039 and 3,350.
    [("a100_80g", "a100-80g", 0.01), ("h100_80g_nvl8", "h100-80g", 0.1)],
)
def test_calculon_gives_the_same_figures(shared_data, theirs, ours, memory_bandwidth_tolerance):
    system = json.loads((shared_data / "parallel/calculon/systems" / f"{theirs}.json").read_text())
    device = hardware.resolve(ours).device
    assert device.memory_bytes == system["mem1"]["GiB"] * 2**30
    assert device.memory_bandwidth / 1e9 == pytest.approx(
        system["mem1"]["GBps"], rel=memory_bandwidth_tolerance
    )
    # Their H100 is rounded to 1,000 TFLOP/s.
    assert device.peak("float16") / 1e12 == pytest.approx(system["matrix"]["float16"]["tflops"], rel=0.011)
    assert device.peer_link.bandwidth / 1e9 == system["networks"][0]["bandwidth"]


def test_calculons_network_per_device_is_one_hdr_adapter(shared_data):
    system = json.loads((shared_data / "parallel/calculon/systems/a100_80g.json").read_text())
    assert library.link("ib-200g", "test").bandwidth / 1e9 == system["networks"][1]["bandwidth"]
