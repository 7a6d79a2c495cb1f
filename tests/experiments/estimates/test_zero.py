"""DeepSpeed's published estimates and ZeRO-Infinity's bandwidth model, by their closed forms."""

from __future__ import annotations

import pytest

from experiments.core.errors import BadInput
from experiments.estimates.zero import (
    deepspeed_device_bytes,
    infinity_efficiency,
)


@pytest.mark.parametrize(
    ("stage", "offload", "gib"),
    [(2, "none", 15.93), (2, "optimizer", 5.31), (3, "none", 6.09), (3, "optimizer", 0.78), (3, "all", 0.12)],
)
def test_a_model_of_2851_million_parameters_on_eight_devices(stage: int, offload: str, gib: float) -> None:
    found = deepspeed_device_bytes(2851e6, 8, stage, offload, largest_layer=32e6)
    assert found / 2**30 == pytest.approx(gib, abs=0.01)


def test_stage_2_keeps_its_parameters() -> None:
    with pytest.raises(BadInput, match="stage 2 with offload 'all'"):
        deepspeed_device_bytes(1e9, 8, 2, "all")


@pytest.mark.parametrize(
    ("moved", "bandwidth", "shape", "efficiency"),
    [
        ("parameters", 70e9, {"batch": 1, "sequence": 1024}, 0.506),
        ("optimizer", 1.5e12, {"batch": 1, "sequence": 2048}, 0.916),
        ("checkpoints", 2e9, {"batch": 1, "sequence": 1024, "hidden": 2048}, 0.584),
    ],
)
def test_efficiency_at_70_tflops(
    moved: str, bandwidth: float, shape: dict[str, int], efficiency: float
) -> None:
    assert infinity_efficiency(moved, bandwidth, 70e12, **shape) == pytest.approx(efficiency, abs=1e-3)
