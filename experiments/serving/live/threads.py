"""One thread for small models on a processor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Within it torch computes on one core.

    Steps of a small model last a millisecond: on two cores they wait for whichever the host takes away, and
    the same run takes between one and three times as long.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
