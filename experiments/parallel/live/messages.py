"""Messages between the stages of different workers, and tensors handed over between those of one rank."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from experiments.core.errors import LabError
from experiments.parallel.interface import ParallelPlan, Slot
from experiments.parallel.live.places import Places


class Messages:
    """What one rank sends and receives. A device talks to the one in its own place of the other worker.

    What is whole on all devices of a worker travels in as many pieces and is gathered in ``group`` on
    arrival.
    """

    def __init__(
        self, plan: ParallelPlan, rank: int, group: dist.ProcessGroup | None, device: torch.device
    ) -> None:
        counts = {len(worker.devices) for worker in plan.workers}
        if len(counts) > 1:
            raise LabError(f"workers of {sorted(counts)} devices exchange no activations here")
        self.places = Places(plan)
        self.place, self.pieces = self.places.of_rank[rank], counts.pop()
        self.group, self.device = group, device
        self._slots = {
            slot: (number, index)
            for number, worker in enumerate(plan.workers)
            for index, slot in enumerate(worker.slots)
        }
        self._sent: dict[int, list[tuple[int, Any, Tensor]]] = defaultdict(list)
        self._handed_over: dict[int, Tensor] = {}

    def send(self, tensor: Tensor, reader: Slot, tag: int, whole: bool) -> None:
        """Send to the worker of the slot that reads it; never waits.

        The buffer lives until that slot is known to be done.
        """
        worker, index = self._slots[reader]
        if worker == self.place.worker:
            self._handed_over[tag] = tensor
            return
        part = (
            self._own_piece(tensor) if self._travels_in_pieces(tensor.shape, whole) else tensor.contiguous()
        )
        self._sent[worker].append((index, dist.isend(part, self._peer(worker), tag=tag), part))

    def receive(self, shape: torch.Size, dtype: torch.dtype, maker: Slot, tag: int, whole: bool) -> Tensor:
        """The tensor of ``shape`` (this rank's, if it is cut) that the slot ``maker`` sent under ``tag``."""
        worker, index = self._slots[maker]
        if worker == self.place.worker:
            return self._handed_over.pop(tag)
        received = self._receive(shape, dtype, worker, tag, whole)
        self._release(worker, index)
        return received

    def _receive(self, shape: torch.Size, dtype: torch.dtype, worker: int, tag: int, whole: bool) -> Tensor:
        if not self._travels_in_pieces(shape, whole):
            tensor = torch.empty(shape, dtype=dtype, device=self.device)
            dist.recv(tensor, self._peer(worker), tag=tag)
            return tensor
        part = torch.empty(shape.numel() // self.pieces, dtype=dtype, device=self.device)
        dist.recv(part, self._peer(worker), tag=tag)
        flat = part.new_empty(shape.numel())
        dist.all_gather_into_tensor(flat, part, group=self.group)
        return flat.view(shape)

    def _release(self, worker: int, index: int) -> None:
        """A worker that has come to its slot ``index`` has read what its slots up to there read."""
        for reader, work, _ in self._sent[worker]:
            if reader <= index:
                work.wait()
        self._sent[worker] = [sent for sent in self._sent[worker] if sent[0] > index]

    def flush(self) -> None:
        for sent in self._sent.values():
            for _, work, _ in sent:
                work.wait()
        self._sent.clear()

    def _peer(self, worker: int) -> int:
        return self.places.rank(worker, self.place.device)

    def _travels_in_pieces(self, shape: torch.Size, whole: bool) -> bool:
        """A tensor that does not divide travels whole from each device."""
        return whole and self.pieces > 1 and shape.numel() % self.pieces == 0

    def _own_piece(self, tensor: Tensor) -> Tensor:
        return tensor.reshape(-1).chunk(self.pieces)[self.place.device].clone()
