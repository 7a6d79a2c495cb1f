"""What a prediction of a measured run stands on: links from timed collectives, and the layers that FSDP2
gathers together.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.parallel.policies.gpipe import GPipe
from experiments.parallel.policies.zero import Zero
from experiments.parallel.simulator import simulate
from tests.experiments.parallel.builders import chain, cluster, estimate

pytestmark = pytest.mark.torch

ROWS = [
    {"kind": kind, "size": size, "seconds": alpha + size / 2 * beta}
    for kind, alpha, beta in (("all_gather", 1.0, 0.5), ("reduce_scatter", 2.0, 1.0))
    for size in (8, 64, 512)
]
SUMS = [{"kind": "all_reduce", "size": size, "seconds": 2 * 0.5 + size * 0.25} for size in (8, 64, 512)]
SENDS = [{"kind": "send", "size": size, "seconds": 0.5 + size * 0.125} for size in (8, 64, 512)]


def test_every_kind_of_collective_has_a_link_of_its_own() -> None:
    """Two ranks: a gather or scatter sends half of the vector in one message, an all-reduce all
    of it in two.
    """
    from experiments.parallel.live.calibration import links_of

    model, hardware = chain(2, parameter_bytes=4.0), cluster(1, 2)
    plan = Zero(stage=1).place(model, hardware, 2, estimate(model, hardware))
    found = links_of(plan, [*ROWS, *SUMS, *SENDS], 2)
    assert found is not None
    links = {"all_reduce": found.link, **dict(found.collectives)}
    assert {kind: (round(link.latency, 9), round(link.bandwidth, 9)) for kind, link in links.items()} == {
        "all_reduce": (0.5, 4.0),
        "all_gather": (1.0, 2.0),
        "reduce_scatter": (2.0, 1.0),
    }


def test_a_pipeline_of_single_devices_stands_on_messages_alone() -> None:
    from experiments.parallel.live.calibration import links_of

    model, hardware = chain(2), cluster(1, 2)
    plan = GPipe(micro_batches=2).place(model, hardware, 2, estimate(model, hardware))
    found = links_of(plan, SENDS, 2)
    assert found is not None
    assert (round(found.link.latency, 9), round(found.link.bandwidth, 9)) == (0.5, 8.0)
    assert links_of(plan, [{**row, "seconds": 1 / row["size"]} for row in SENDS], 2) is None


def test_rows_of_operators_are_gathered_block_by_block_and_modules_each_by_itself() -> None:
    from experiments.parallel.live.modules import units

    assert units(("embedding", "blocks.0.norm", "blocks.0.qkv", "blocks.1.norm", "blocks.1.qkv", "loss")) == (
        (5, 6),
        (3, 5),
        (1, 3),
        (0, 1),
    )
    assert units(("tokens", "blocks.0", "blocks.1")) == ((2, 3), (1, 2), (0, 1))


def test_weights_gathered_module_by_module_pay_a_latency_each() -> None:
    """Two layers, two bytes of weights each for every rank's half: 1 s of latency for each gather or scatter,
    no bytes.
    """
    from experiments.hardware import Link

    link = Link("slow", 1e30, 1.0, True, "test")
    model, hardware = chain(2, parameter_bytes=4.0), cluster(1, 2, link=link)
    asked = replace(estimate(model, hardware), exchange="between")
    plan = Zero(stage=1).place(model, hardware, 2, asked)
    own = replace(plan, synchronization=replace(plan.synchronization, buckets=((1, 2), (0, 1))))
    assert simulate(plan, asked).step_time == 2 * 3 + 1 + 1
    assert simulate(own, asked).step_time == 2 * 3 + 2 + 2
