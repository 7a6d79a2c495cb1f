"""What copies in flight hold of the device: tensors leave in the order in which their copies arrive."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from experiments.memory.live import cuda_copies  # noqa: E402
from experiments.memory.live.departures import Departures, Flights  # noqa: E402
from experiments.memory.live.ledger import Ledger  # noqa: E402

pytestmark = pytest.mark.torch


class Copy:
    """An event of a copy that arrives when a test says so, or when somebody waits for it."""

    def __init__(self) -> None:
        self.arrived = self.awaited = False

    def query(self) -> bool:
        return self.arrived

    def synchronize(self) -> None:
        self.arrived = self.awaited = True


def storage(size: int = 64) -> torch.UntypedStorage:
    return torch.zeros(size, dtype=torch.uint8).untyped_storage()


def test_bytes_come_free_when_their_copies_have_arrived_and_no_sooner() -> None:
    leaving, copies, storages = Departures(), [Copy() for _ in range(3)], [storage() for _ in range(3)]
    for number in range(3):
        leaving.add(number, copies[number], storages[number])
    copies[0].arrived = True
    leaving.collect()
    assert [one.nbytes() for one in storages] == [0, 64, 64]
    leaving.free_oldest()
    assert [one.nbytes() for one in storages] == [0, 0, 64]
    assert (copies[1].awaited, copies[2].awaited) == (True, False)
    assert leaving
    leaving.free(2)
    assert not leaving


def test_a_tensor_that_leaves_again_has_left_before() -> None:
    leaving, first, second = Departures(), storage(), storage()
    leaving.add(7, Copy(), first)
    leaving.add(7, Copy(), second)
    assert (first.nbytes(), second.nbytes()) == (0, 64)


def test_what_a_copy_reads_stays_whatever_becomes_of_its_tensor() -> None:
    flights, copy = Flights(), Copy()
    flights.add(copy, torch.zeros(4))
    assert flights.land()
    copy.arrived = True
    assert not flights.land()


def test_what_torch_keeps_in_host_memory_is_copied_there_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attention kernel's seeds are on the processor though the step computes on a GPU."""
    monkeypatch.setattr(cuda_copies, "_stream", lambda: None)
    copies, seeds = cuda_copies.CudaCopies(Ledger()), torch.arange(2)
    copies._buffers[3] = torch.empty(16, dtype=torch.uint8)
    for tier in ("host", "storage"):
        copies.offload(3, seeds.untyped_storage(), tier)
        copies.release(3, seeds.untyped_storage())
        assert seeds.untyped_storage().nbytes() == 0
        copies._buffers.setdefault(3, torch.empty(16, dtype=torch.uint8))
        copies.prefetch(3, seeds.untyped_storage())
        assert seeds.tolist() == [0, 1]
    copies.arena.close()
