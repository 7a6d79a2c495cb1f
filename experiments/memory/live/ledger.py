"""Exact bytes on the device, by watching storages, and bytes of copies on each tier."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.multiprocessing.reductions import StorageWeakRef

#: Where copies can be resident in a measured run.
TIERS = ("host", "storage")


class Ledger:
    """Exact bytes of the storages that are alive, by weak references to the storages themselves."""

    def __init__(self) -> None:
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self.live = 0
        self.peak = 0

    def enter(self, storage: torch.UntypedStorage) -> None:
        """Count ``storage`` at its present size, instead of at what it counted before."""
        key = storage._cdata
        self.live += storage.nbytes() - self._drop(key)
        self._alive[key] = (_watch(storage), storage.nbytes())
        self.peak = max(self.peak, self.live)

    def sweep(self, keys: list[int]) -> None:
        """Take the storages of ``keys`` that no longer exist off the account."""
        for key in keys:
            if key in self._alive and _is_gone(self._alive[key][0]):
                self.live -= self._drop(key)

    def _drop(self, key: int) -> int:
        return self._alive.pop(key)[1] if key in self._alive else 0


@dataclass(frozen=True)
class Copy:
    """A good copy of a tensor on a tier.

    The tensor has ``plain`` bytes, the copy ``size`` bytes on ``tier``; packed by words of ``word`` bytes
    if any.
    """

    tier: str
    plain: int
    size: int
    word: int = 0


class CopyLedger:
    """The good copies on the tiers: ``away`` by tensor, bytes ``held`` by tier and the most there were."""

    def __init__(self) -> None:
        self.away: dict[int, Copy] = {}
        self.held = dict.fromkeys(TIERS, 0)
        self.peaks = dict.fromkeys(TIERS, 0)

    def put(self, tensor: int, copy: Copy) -> None:
        self.remove(tensor)
        self.away[tensor] = copy
        self.held[copy.tier] += copy.size
        self.peaks[copy.tier] = max(self.peaks[copy.tier], self.held[copy.tier])

    def remove(self, tensor: int) -> None:
        copy = self.away.pop(tensor, None)
        if copy is not None:
            self.held[copy.tier] -= copy.size


def _watch(storage: torch.UntypedStorage) -> StorageWeakRef:
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


def _is_gone(reference: StorageWeakRef) -> bool:
    return bool(reference.expired())  # type: ignore[no-untyped-call]
