"""NodeList: the nodes of a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats


@dataclass(frozen=True)
class NodeList:
    """Nodes in the order of the file: name, devices, their type, processors and bytes of memory.

    What a file does not tell of hosts is infinite: as much as anybody wants.
    """

    file: str
    name: tuple[str, ...]
    gpus: Ints
    type: tuple[str, ...]
    cpus: Floats
    memory: Floats
