"""Whether a captured step's graph gives what the eager step gives."""

from __future__ import annotations

from typing import Any

import torch


def assert_replays_eager(traced: Any, steps: int = 2) -> None:
    """Losses, weights and optimizer state are equal bit for bit after each of ``steps``."""
    replayed, eager = traced.make_inputs(0), traced.make_inputs(0)
    for _ in range(steps):
        with torch.no_grad():
            loss = traced.graph_module(*replayed)
        assert torch.equal(loss, traced.eager(*eager))
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(replayed, eager, strict=True))
