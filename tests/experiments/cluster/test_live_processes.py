"""Training processes of live jobs: stopped, resumed, resized, and ended with whoever started them."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from experiments.cluster.live.gang_process import GangProcess, start  # noqa: E402
from tests.variants import variants  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]
STEPS = 120
CORE = sorted(os.sched_getaffinity(0))[0]


@pytest.fixture
def gangs() -> Iterator[list[GangProcess]]:
    found: list[GangProcess] = []
    yield found
    for gang in found:
        gang.end()


def train(gangs: list[GangProcess], folder: Path, ranks: int = 1, number: int = 0, steps: int = STEPS) -> Any:
    """The ``number``-th stay of a job with its state in ``folder``."""
    training = {"model": "cnn", "seed": 3, "steps": steps, "checkpoint_every": None}
    gangs.append(start(folder, number, training, [CORE] * ranks, [None] * ranks))
    return gangs[-1]


def hear(gang: GangProcess, awaited: str) -> dict[str, Any]:
    until = time.monotonic() + 60
    with selectors.DefaultSelector() as selector:
        selector.register(gang.output, selectors.EVENT_READ)
        while time.monotonic() < until:
            selector.select(1.0)
            for said in gang.hear():
                if said["said"] == awaited:
                    return said
                assert said["said"] != "gone", gang.last_words()
    raise AssertionError(f"{awaited} was not said")


def state(folder: Path) -> dict[str, Any]:
    kept: dict[str, Any] = torch.load(folder / "state.pt", weights_only=True)
    return kept


def largest_difference(one: Any, other: Any) -> float:
    if isinstance(one, torch.Tensor):
        return float((one.double() - other.double()).abs().max()) if one.numel() else 0.0
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        return max((largest_difference(value, other[key]) for key, value in one.items()), default=0.0)
    if isinstance(one, list):
        return max((largest_difference(*pair) for pair in zip(one, other, strict=True)), default=0.0)
    return 0.0 if one == other else float("inf")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    gang = train([], folder)
    hear(gang, "done")
    gang.end()
    return folder


@pytest.mark.parametrize("times", variants(2, 5))
def test_a_job_that_is_preempted_ends_as_if_nobody_had_touched_it(
    tmp_path: Path, undisturbed: Path, gangs: list[GangProcess], times: int
) -> None:
    reached = []
    for number in range(times):
        gang = train(gangs, tmp_path, number=number)
        hear(gang, "begun")
        hear(gang, "step")
        gang.tell("stop")
        reached.append(hear(gang, "stopped")["step"])
    assert sorted(set(reached)) == reached
    assert reached[-1] < STEPS
    last = train(gangs, tmp_path, number=times)
    assert hear(last, "begun")["step"] == reached[-1]
    assert hear(last, "done")["step"] == STEPS
    assert largest_difference(state(tmp_path), state(undisturbed)) == 0.0


def test_a_job_that_waits_in_memory_goes_on_where_it_was(
    tmp_path: Path, undisturbed: Path, gangs: list[GangProcess]
) -> None:
    gang = train(gangs, tmp_path)
    hear(gang, "begun")
    gang.tell("pause")
    at = hear(gang, "paused")["step"]
    time.sleep(0.3)
    gang.tell("go")
    assert hear(gang, "begun")["step"] == at
    hear(gang, "done")
    assert largest_difference(state(tmp_path), state(undisturbed)) == 0.0


def test_a_job_on_two_slots_and_then_on_one_learns_the_same(
    tmp_path: Path, undisturbed: Path, gangs: list[GangProcess]
) -> None:
    both = train(gangs, tmp_path, ranks=2)
    hear(both, "begun")
    hear(both, "step")
    both.tell("stop")
    reached = hear(both, "stopped")["step"]
    assert 0 < reached < STEPS
    alone = train(gangs, tmp_path, number=1)
    assert hear(alone, "begun")["step"] == reached
    hear(alone, "done")
    found, wanted = state(tmp_path), state(undisturbed)
    assert torch.equal(found["random"], wanted["random"])
    assert largest_difference(found["model"], wanted["model"]) < 1e-6


def test_a_process_ends_with_whoever_started_it(tmp_path: Path, gangs: list[GangProcess]) -> None:
    gang = train(gangs, tmp_path, steps=10**9)
    hear(gang, "begun")
    entry = gang.ranks[0].stdin
    assert entry is not None
    entry.close()
    assert gang.ranks[0].wait(30) == 1
