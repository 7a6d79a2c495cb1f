"""What every allocator with addresses can do."""

from __future__ import annotations

from abc import ABC, abstractmethod

#: The address of what has no bytes.
NOWHERE = -1
#: The tensor id of what is not a tensor: scratch space of a running op.
SCRATCH = -1


class Allocator(ABC):
    """Device addresses: ``take`` answers with one (``None``: no hole holds the size), ``give`` returns it.

    Tensors of no bytes lie ``NOWHERE``. ``end`` is the most bytes of device memory that the pool has reached
    over so far, ``wasted`` the most that were free (or reserved) and yet of no use to a large request.
    """

    end = 0
    wasted = 0

    @abstractmethod
    def take(self, tensor: int, size: int) -> int | None:
        """An address for ``size`` bytes of ``tensor``."""

    @abstractmethod
    def give(self, address: int) -> None:
        """What lies at ``address`` is no longer needed."""

    @property
    @abstractmethod
    def free(self) -> int:
        """Bytes not given out."""

    @property
    @abstractmethod
    def largest(self) -> int:
        """Bytes of the largest request that could be met."""
