"""What weights and gradients cost that travel one tensor at a time, through a list of a part for each device.

ZeRO-3 of DeepSpeed 0.3.15 (April 2021; runtime/zero/partition_parameters.py, stage3.py) gathers a weight when
its module begins: it waits for the device, fills a new tensor with zeros, and in Python makes a view of it
for each device; torch.distributed.all_gather then receives all parts in a tensor of its own and copies each
to its view, a kernel for each device. A norm of what was gathered is computed for a message that nobody
reads. A gradient is divided by the devices and gets two views for each device; reduce_scatter first copies
every part into a tensor of its own. So a tensor keeps host and device for a time that grows with the devices,
and nothing is computed meanwhile.

The host's time for each part is that of an operation of PyTorch: about 2 us from Python, half of it in C++
(pytorch/pytorch issue 41383, 2020: two small tensors). A copy takes a launch. Of 8 devices a gather kept the
host for 380 us (130 until its start, 250 in it; DeepSpeed issue 1069, June 2021): what is not the parts' is
the same for any number of devices. Nothing was fitted.

ZeRO-1 of nanotron (March 2025; optim/zero.py, distributed.py) gathers all updated weights at once, through
lists that have a slice of every tensor for each device: views made in Python, lists joined, filled from the
buffers of the collective, and copied slice by slice to where they belong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from experiments.hardware.parts import Device
from experiments.hardware.products import stream_seconds
from experiments.parallel.interface import ParallelPlan, PlanningEstimate

#: Seconds of the host for an operation of PyTorch that Python calls, and for one that C++ calls.
FROM_PYTHON, FROM_CPP = 2e-6, 1e-6


@dataclass(frozen=True)
class ListHandling:
    """A collective through a list: ``once`` seconds of the host, ``each`` of them for every part.

    ``moves`` is how often all bytes are read or written, beyond the transfer.
    """

    once: float
    each: float
    moves: float

    def seconds(self, device: Device, ranks: int, size: float) -> float:
        """Seconds in which ``device`` computes nothing, for a tensor of ``size`` bytes in ``ranks`` parts."""
        return self.once + ranks * self.each + stream_seconds(device, self.moves * size, ranks)


#: A view and a question for the own rank for each part; zeros written, parts read and written, a norm read.
#: Copies wait for the transfer, so that the host is ahead of them.
GATHER = ListHandling(380e-6 - 8 * (FROM_PYTHON + 3 * FROM_CPP + 4e-6), FROM_PYTHON + FROM_CPP, 4.0)
#: Two views for each part, which is picked and copied; divided and copied, each read and written.
REDUCE = ListHandling(0.0, 2 * FROM_PYTHON + 2 * FROM_CPP, 4.0)
#: A view for each slice; the lists joined, what came copied to them, and each slice to its place.
SLICE = ListHandling(0.0, FROM_PYTHON, 6.0)


class TensorLists:
    """What a plan's tensors cost besides their transfers, where it has them travel one at a time."""

    def __init__(self, plan: ParallelPlan, estimate: PlanningEstimate) -> None:
        self.used = plan.synchronization.tensor_by_tensor
        self._plan, self._estimate = plan, estimate

    def tensors(self, layers: Iterable[int]) -> int:
        """Messages for the weights of ``layers``: of each product, at least one of a layer that has any."""
        if not self.used:
            return 1
        return sum(self._weights(layer) for layer in layers if self._estimate.layer_parameters[layer])

    def _weights(self, layer: int) -> int:
        rows = self._estimate.model.work[layer] if self._estimate.model.work else ()
        return max(1, sum(product.weight for row in rows for product in row.products))

    def seconds(self, how: ListHandling, stage: int, size: float, experts: bool, tensors: int) -> float:
        """Seconds in which a device computes nothing for ``tensors`` of ``size`` bytes together."""
        if not self.used:
            return 0.0
        ranks = self._plan.sharing(self._plan.stages[stage], experts)
        return tensors * how.seconds(self._estimate.devices[0], ranks, size / tensors)

    def slicing_seconds(self, stage: int, layers: Iterable[int], size: float, experts: bool) -> float:
        """Seconds in which a device handles its slices of weights of ``size`` bytes, all tensors together."""
        if not self._plan.synchronization.by_slice:
            return 0.0
        tensors = sum(self._estimate.layer_parameters[layer] > 0 for layer in layers)
        ranks = self._plan.sharing(self._plan.stages[stage], experts)
        return SLICE.seconds(self._estimate.devices[0], int(tensors) * ranks, size)
