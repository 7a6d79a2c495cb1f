"""The outcome of a memory step as long as those of the largest models: 10,000 ops, 100,000 instants."""

from __future__ import annotations

from typing import Any

OPS, INSTANTS = 10_000, 100_000
#: The one instant at which memory is at its highest, and how high (1 KiB).
PEAK_AT, PEAK = 77_777, 1024.0


def long_step() -> dict[str, Any]:
    """Every op lasts 1 s, and a channel is busy in every tenth.

    Bytes go from 600 to 699 again and again, with one peak of 1,024; the queue goes as they do.
    """
    times = [OPS * i / INSTANTS for i in range(INSTANTS)]
    bytes_ = [float(600 + i % 100) for i in range(INSTANTS)]
    bytes_[PEAK_AT] = PEAK
    curve = {"unit": "bytes", "x": times, "y": bytes_}
    busy = [t for op in range(0, OPS, 10) for t in (op + 0.25, op + 0.75)]
    channel = {"unit": "busy", "x": [0.0, *busy, float(OPS)], "y": [0, *[1, 0] * (len(busy) // 2), 0]}
    return {
        "series": {
            "device_bytes": curve,
            "device_bytes.activation": curve,
            "capacity": {"unit": "bytes", "x": [0.0, OPS], "y": [1100, 1100]},
            "channel.out": channel,
            "queue": {**curve, "unit": "jobs"},
        },
        "plan": {"moves": []},
        "provenance": {
            "stall_by_cause": {},
            "timeline": {"compute": compute(), "stalls": {"transfer": [[2000.0, 3000.0]]}, "tensors": {}},
        },
    }


def compute() -> dict[str, Any]:
    """Op ``n`` from ``n`` to ``n + 1``, each with its own name."""
    texts = ["", *(f"op_{op}" for op in range(OPS))]
    return {
        "of": OPS,
        "what": ["op"] * OPS,
        "index": list(range(OPS)),
        "start": [float(op) for op in range(OPS)],
        "end": [op + 1.0 for op in range(OPS)],
        "texts": texts,
        "name": list(range(1, OPS + 1)),
        "module": [0] * OPS,
    }
