"""Tensors on storage: one file without a name, which is gone when it is closed or its process ends, however
it ends.

Plain reads and writes of whole tensors, through the system's page cache. The file lies in ``TMPDIR``: where
that is memory (tmpfs), so is this storage.
"""

from __future__ import annotations

import ctypes
import os
import tempfile

from torch import Tensor


class Arena:
    """A file with a place for each tensor, used again in every step.

    A larger content gets a new place at the end.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the arena is)
        self._places: dict[int, tuple[int, int]] = {}
        self._end = 0

    def close(self) -> None:
        self._file.close()

    def write(self, tensor: int, content: Tensor) -> None:
        """Keep ``content`` (uint8, in host memory) as that of ``tensor``."""
        if content.numel() > self._places.get(tensor, (0, -1))[1]:
            self._places[tensor] = (self._end, content.numel())
            self._end += content.numel()
        place, _ = self._places[tensor]
        view = _memory(content)
        while len(view):  # one call writes at most 2 GiB
            count = os.pwrite(self._file.fileno(), view, place)
            view, place = view[count:], place + count

    def read(self, tensor: int, into: Tensor) -> None:
        """Fill ``into`` (uint8, in host memory) with what was kept of ``tensor``.

        ``OSError`` where less is there.
        """
        place, _ = self._places[tensor]
        view = _memory(into)
        while len(view):
            count = os.preadv(self._file.fileno(), [view], place)
            if not count:
                raise OSError(f"the file ends within tensor {tensor}, {len(view)} bytes too early")
            view, place = view[count:], place + count


def _memory(content: Tensor) -> memoryview:
    """The bytes of ``content``, writable; ``Tensor.numpy`` would forbid its storage to shrink
    from then on.
    """
    return memoryview((ctypes.c_ubyte * content.numel()).from_address(content.data_ptr())).cast("B")
