"""Memory snapshots in the shape that ``torch.cuda.memory._snapshot`` documents, with figures to work out by
hand.
"""

from __future__ import annotations

import pickle
from typing import Any

Row = dict[str, Any]
ALLOCATOR = {
    "name": "c10::cuda::CUDACachingAllocator::malloc",
    "filename": "CUDACachingAllocator.cpp",
    "line": 1,
}
FORWARD = {"name": "forward", "filename": "/home/me/model.py", "line": 12}
ENGINE = {"name": "torch::autograd::Engine::evaluate_function", "filename": "engine.cpp", "line": 3}
UPDATE = {"name": "step", "filename": "/site/torch/optim/sgd.py", "line": 80}


def event(action: str, address: int, size: int, *frames: Row, **more: Any) -> Row:
    return {
        "action": action,
        "addr": address,
        "size": size,
        "stream": 0,
        "frames": [ALLOCATOR, *frames],
        **more,
    }


def freed(address: int, size: int, *frames: Row, **more: Any) -> list[Row]:
    return [event(f"free_{part}", address, size, *frames, **more) for part in ("requested", "completed")]


def block(address: int, size: int, state: str = "inactive", requested: int | None = None) -> Row:
    return {
        "address": address,
        "size": size,
        "requested_size": size if requested is None else requested,
        "state": state,
        "frames": [ALLOCATOR, FORWARD],
    }


def segment(address: int, size: int, *blocks: Row) -> Row:
    return {
        "device": 0,
        "address": address,
        "total_size": size,
        "stream": 0,
        "segment_type": "small",
        "segment_pool_id": (0, 0),
        "allocated_size": sum(b["size"] for b in blocks if b["state"] == "active_allocated"),
        "active_size": sum(b["size"] for b in blocks if b["state"] != "inactive"),
        "blocks": list(blocks),
    }


def training(clock: bool = False) -> Row:
    """1,000 bytes of weights from before; x (600) and y (400) in the forward pass, g (1,000) in the backward
    pass, x freed while g is there, then g after the update; an unknown 200 is freed at the start. y stays to
    the end.

    In use: 1,200 at first, 1,000 then 1,600 and 2,000 going forward, 3,000 with g, 2,400 without x, 1,400 at
    the end.
    """
    rows = [
        *freed(9000, 200, FORWARD),
        event("segment_alloc", 4096, 4096, FORWARD),
        event("alloc", 4096, 600, FORWARD),
        event("alloc", 5120, 400, FORWARD),
        event("alloc", 6144, 1000, ENGINE),
        *freed(4096, 600, ENGINE),
        *freed(6144, 1000, UPDATE),
        event("snapshot", 0, 0),
    ]
    if clock:
        rows = [{**row, "time_us": 1_700_000_000_000_000 + 10 * index} for index, row in enumerate(rows)]
    weights = segment(0, 2048, block(0, 1024, "active_allocated", 1000), block(1024, 1024))
    rest = segment(
        4096, 4096, block(4096, 1024), block(5120, 512, "active_allocated", 400), block(5632, 2560)
    )
    return {
        "segments": [weights, rest],
        "device_traces": [rows, []],
        "allocator_settings": {"max_split_size": -1},
    }


def pickled(content: Any, protocol: int = 4) -> bytes:
    return pickle.dumps(content, protocol=protocol)
