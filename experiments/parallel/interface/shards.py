"""What a sharding says of the activations between layers: whole on every device of the worker, or cut along a
dimension.
"""

from __future__ import annotations

from experiments.parallel.interface.plan import PER_STEP, Sharding

#: The sequence of [batch, tokens, width]; the width of anything.
SEQUENCE, WIDTH = 1, -1


def input_cut_along(sharding: Sharding) -> int | None:
    """Return the dimension along which what a layer reads is sharded; ``None`` for whole.

    Each device has a piece of it.
    """
    if sharding.axis == "row":
        return WIDTH
    exchanged = {collective.kind for collective in sharding.forward} & {"all_gather", "reduce_scatter"}
    return SEQUENCE if exchanged and sharding.axis != "column" else None


def output_cut_along(sharding: Sharding) -> int | None:
    """Return the dimension along which a layer's output is sharded; ``None`` for whole."""
    kinds = {collective.kind for collective in sharding.forward}
    if sharding.axis == "column":
        return None if "all_gather" in kinds else WIDTH
    return SEQUENCE if "reduce_scatter" in kinds else None


def whole_output(sharding: Sharding | None) -> bool:
    """Return whether every device of a worker has all that the layer makes.

    Nothing is divided, or it comes together last.
    """
    if sharding is None or max(sharding.compute, sharding.activations) <= 1:
        return True
    last = [collective for collective in sharding.forward if collective.per != PER_STEP][-1:]
    return any(
        collective.kind in ("all_reduce", "all_gather") and not collective.ranks for collective in last
    )
