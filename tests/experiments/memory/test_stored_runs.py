"""Runs that were stored while a plan had ``pool``, ``paging`` and ``artifact`` load as they always did, and
repeat.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.core.errors import BadInput
from experiments.core.spec import load_spec
from experiments.memory.interface import (
    CACHED_STORAGE,
    CorrelationPaging,
    CountedBytes,
    DemandPaging,
    LinePaging,
    MemoryPool,
    PagingRelease,
    ReadAheadPaging,
    Space,
    TwoEndedRelease,
    WaitingRelease,
    load_plan,
)
from experiments.run import run
from experiments.workloads import storage
from tests.experiments.memory.stored_runs import MIB, NAMES, linear_chain, stored_run

ADDRESSES = ((0, 8), (1, 12), (2, 16), (3, 2), (4, 0), (5, 2), (6, 4), (7, 6))
#: What each stored plan asks of the device's memory, in today's words.
SPACES: dict[str, Space] = {
    "counted": CountedBytes(),
    "pool": MemoryPool("planned", offsets=tuple((tensor, mib * MIB) for tensor, mib in ADDRESSES)),
    "demand": DemandPaging(),
    "preferred": DemandPaging(preferred=(4, 5, 6, 7)),
    "read_ahead": ReadAheadPaging(window=8, coalesced=8, backing=CACHED_STORAGE, reuse=False),
    "correlation": CorrelationPaging(degree=8, discard_dead=True),
    "lines": LinePaging(line_bytes=1 << 16, line_share=0.25, ratio=2.0, backing="remote"),
    "release_paging": PagingRelease(keeps_dead=True, block_bytes=4 * MIB),
    "release_waiting": WaitingRelease(space_factor=4.0),
    "release_two_ended": TwoEndedRelease(),
}


def test_there_is_a_stored_run_of_every_kind() -> None:
    assert set(NAMES) == set(SPACES)


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_plan_loads_in_todays_words_and_is_stored_in_them(name: str) -> None:
    before = stored_run(name)["plan"]
    plan = load_plan(before)
    assert plan.space == SPACES[name]
    after = plan.to_json()
    assert after["moves"] == before["moves"] and after["notes"] == before["notes"]
    assert not {"pool", "paging", "artifact"} & set(after)
    assert load_plan(after) == plan


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_run_is_repeated_to_the_last_digit(name: str, tmp_path: Path) -> None:
    before = stored_run(name)
    storage.save(linear_chain(), tmp_path / "chain.step")
    spec = load_spec({**before["spec"], "workload": {"source": str(tmp_path / "chain.step")}})
    after = run(spec).to_json()
    assert after["metrics"] == before["metrics"]
    assert after["series"] == before["series"]
    assert after["provenance"]["timeline"] == before["provenance"]["timeline"]
    assert load_plan(after["plan"]) == load_plan(before["plan"])


@pytest.mark.parametrize(
    ("plan", "complaint"),
    [
        ({"paging": {"read_ahead": 8, "correlation": 8}}, "plan.paging: fetches by more than one mechanism"),
        ({"pool": {"kind": "best_fit"}, "paging": {}}, "plan: has pool and paging"),
        ({"artifact": {"engine": "steam"}}, "plan.artifact: unknown engine 'steam'"),
        ({"space": {"model": "pool", "window": 8}}, "plan.space: .*window"),
        ({"space": {"model": "read_ahead_paging", "degree": 8}}, "plan.space: .*degree"),
        ({"space": {"model": "pool", "kind": "best_fit"}, "paging": {}}, "plan: has space and paging"),
    ],
)
def test_a_space_that_is_two_things_at_once_is_refused_by_name(plan: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        load_plan(plan)
