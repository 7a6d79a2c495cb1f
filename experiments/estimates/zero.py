"""Closed forms of ZeRO-Infinity's bandwidth model and of DeepSpeed's published memory estimators. Bytes and
shares.

DeepSpeed's estimators count model states only, in GB of 2^30 bytes on its documentation pages.
"""

from __future__ import annotations

from experiments.core.errors import BadInput

#: What DeepSpeed's estimators can leave to the host.
OFFLOADS = ("none", "optimizer", "all")


def deepspeed_device_bytes(
    parameters: float, devices: int, stage: int, offload: str = "none", largest_layer: float = 0
) -> float:
    """Model states on each device by DeepSpeed's estimators (documentation, "Memory Requirements").

    Stage 2 keeps 2 bytes of weights and 2 of gradients a parameter and a share of 16; with the optimizer on
    the host, 2 bytes. Stage 3 keeps the ``largest_layer`` (parameters) in 4 bytes and a share of 18, of 2
    with the optimizer on the host, and of nothing with all of it there.
    """
    if stage not in (2, 3) or offload not in OFFLOADS or (stage == 2 and offload == "all"):
        raise BadInput(
            f"stage {stage} with offload {offload!r}", "deepspeed", "stage 2 or 3; " + ", ".join(OFFLOADS)
        )
    if stage == 2:
        return 4 * parameters + 16 * parameters / devices if offload == "none" else 2 * parameters
    share = {"none": 18.0, "optimizer": 2.0, "all": 0.0}[offload]
    return 4 * largest_layer + share * parameters / devices


def infinity_intensity(moved: str, batch: int, sequence: int, hidden: int = 0, interval: int = 1) -> float:
    """FLOPs for each byte that crosses to the device (SC 2021, equations 9-11), by what is ``moved``.

    Parameters and gradients: sequence x batch; optimizer states: a quarter of it; activation checkpoints:
    24 x hidden x ``interval`` (blocks between two checkpoints).
    """
    forms = {
        "parameters": float(sequence * batch),
        "optimizer": sequence * batch / 4,
        "checkpoints": 24.0 * hidden * interval,
    }
    if moved not in forms:
        raise BadInput(f"moved = {moved!r}", "infinity_intensity", "one of " + ", ".join(forms))
    return forms[moved]


def infinity_efficiency(
    moved: str,
    bandwidth: float,
    peak_flops: float,
    batch: int,
    sequence: int,
    hidden: int = 0,
    interval: int = 1,
) -> float:
    """Share of the time that computes when compute and movement take turns.

    ait bw / (ait bw + peak) (equation 6).
    """
    rate = infinity_intensity(moved, batch, sequence, hidden, interval) * bandwidth
    return rate / (rate + peak_flops)
