"""Copies of tensors between the device, host memory and storage.

A tensor leaves by shrinking its storage to nothing and returns by growing it again, so every view of it stays
valid. On a CPU the copies are plain and the computation waits for them; ``cuda_copies`` has those overlapped
with the computation.
"""

from __future__ import annotations

import torch
from torch import Tensor

from experiments.memory.live.codec import pack, unpack
from experiments.memory.live.files import Arena
from experiments.memory.live.ledger import Copy, CopyLedger, Ledger


class HostCopies:
    """Copies on a CPU, used again in every step.

    The other side is a second buffer in the same memory or a file.

    ``kept`` are the tensors on the device whose copy on a tier is still good. ``bytes_out`` and
    ``bytes_back`` are what crossed the link. ``ratios`` are plain over packed bytes of what was packed on its
    way, the smallest there was. ``capacity`` are the device bytes that the plan may take, ``beside`` those
    that libraries hold in addition.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.copy_ledger = ledger, CopyLedger()
        self.kept: set[int] = set()
        self.bytes_out = self.bytes_back = 0
        self.capacity: int | None = None
        self.beside = 0
        self.ratios: dict[int, float] = {}
        self._buffers: dict[int, Tensor] = {}
        self._made: set[int] = set()
        self._arena: Arena | None = None

    @property
    def away(self) -> dict[int, Copy]:
        return self.copy_ledger.away

    @property
    def arena(self) -> Arena:
        """The file of the storage tier, opened when it is first used."""
        if self._arena is None:
            self._arena = Arena()
        return self._arena

    def offload(self, tensor: int, storage: torch.UntypedStorage, tier: str = "host", word: int = 0) -> None:
        """Start the copy of ``storage`` to ``tier``, packed if there are words.

        A copy there that is still good serves as well.
        """
        if tensor in self.kept and self.away[tensor].tier == tier:
            self.kept.discard(tensor)
            return
        self.forget(tensor)
        source = bytes_of(storage)
        if word:
            source = pack(source, word)
            self.note_ratio(tensor, storage.nbytes(), source.numel())
        self.copy_ledger.put(tensor, Copy(tier, storage.nbytes(), source.numel(), word))
        self.bytes_out += source.numel()
        self._send(tensor, source, tier)

    def release(self, tensor: int, storage: torch.UntypedStorage) -> None:
        """Give the device bytes back, as soon as the copy has ended."""
        storage.resize_(0)
        self.ledger.enter(storage)

    def prefetch(self, tensor: int, storage: torch.UntypedStorage, keep: bool = False) -> None:
        """Start the copy back; with ``keep`` the one on its tier stays."""
        copy = self.away[tensor]
        storage.resize_(copy.plain)
        self.ledger.enter(storage)
        self.bytes_back += copy.size
        self._fetch(tensor, copy, bytes_of(storage))
        if keep:
            self.kept.add(tensor)
        else:
            self.forget(tensor)

    def forget(self, tensor: int) -> None:
        """The copy of ``tensor`` off the device, if any, is good no more."""
        self.kept.discard(tensor)
        self.copy_ledger.remove(tensor)
        if tensor in self._made:
            self._made.discard(tensor)
            del self._buffers[tensor]

    def make_room(self, size: int) -> None:
        """Before ``size`` bytes are allocated on the device: if they do not fit, what is leaving leaves."""

    def keep_pace(self) -> None:
        """After an op was issued."""

    def need(self, tensor: int) -> None:
        """Before the computation uses ``tensor`` or waits for it."""

    def wait(self, tensor: int) -> None:
        """The computation stalls until the copy of ``tensor`` in flight has ended."""
        self.need(tensor)

    def finish(self) -> None:
        """Before the step's time is taken."""

    def close(self) -> None:
        """Remove the file of the copies."""
        if self._arena is not None:
            self._arena.close()
            self._arena = None

    def note_ratio(self, tensor: int, plain: int, packed: int) -> None:
        ratio = plain / packed if packed else 1.0
        self.ratios[tensor] = min(ratio, self.ratios.get(tensor, ratio))

    # --- content in host memory, for ops that run there -----------------------------------------------------

    def content(self, tensor: int) -> Tensor:
        """The bytes of the copy of ``tensor`` in host memory, to be read and written there."""
        return self._buffers[tensor]

    def adopt(self, tensor: int, storage: torch.UntypedStorage) -> None:
        """``tensor`` was made in host memory, in ``storage``."""
        self._buffers[tensor] = bytes_of(storage)
        self._made.add(tensor)
        self.copy_ledger.put(tensor, Copy("host", storage.nbytes(), storage.nbytes()))

    # --- how bytes travel -----------------------------------------------------------------------------------

    def _send(self, tensor: int, source: Tensor, tier: str) -> None:
        if tier == "storage":
            self.arena.write(tensor, source)
        else:
            self._buffer(tensor, source.numel()).copy_(source)

    def _fetch(self, tensor: int, copy: Copy, target: Tensor) -> None:
        if copy.tier == "storage":
            content = torch.empty(copy.size, dtype=torch.uint8) if copy.word else target
            self.arena.read(tensor, content)
        else:
            content = self._buffers[tensor][: copy.size]
        if copy.word:
            unpack(content, copy.word, target)
        elif content is not target:
            target.copy_(content)

    def _buffer(self, tensor: int, size: int, pinned: bool = False) -> Tensor:
        """``size`` bytes of the tensor's buffer, which grows where it must."""
        if tensor not in self._buffers or self._buffers[tensor].numel() < size:
            self._buffers[tensor] = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
        return self._buffers[tensor][:size]


def bytes_of(storage: torch.UntypedStorage) -> Tensor:
    """The storage as a flat tensor of bytes that shares its memory."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
