"""Data parallelism by torch: DDP, and FSDP2 for ZeRO's stages.

Stage 3 drops gathered weights after each pass. Stages 1 and 2 gather them once a step and keep them to its end; stage 2
reduces gradients after each micro-batch, stage 1 after the last.
"""

from __future__ import annotations

import contextlib
from typing import Any, Protocol

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from experiments.parallel.interface import FORWARD
from experiments.parallel.live.cut import unwrapped
from experiments.parallel.live.job import Job
from experiments.parallel.live.model import OPTIMIZERS, Built
from experiments.parallel.live.places import mesh_of


class Runner(Protocol):
    """A rank's part of the step."""

    def gradients_of_step(self) -> None: ...
    def gradients(self) -> dict[str, Tensor]: ...
    def weights(self) -> dict[str, Tensor]: ...
    def update(self) -> None: ...
    def step(self) -> None: ...


class ReplicaRunner:
    """The whole model on every rank (or its shards), the rank's micro-batches in the order of its slots."""

    def __init__(self, job: Job, rank: int, made: Built) -> None:
        self.plan, self.made = job.plan, made
        self.slots = job.plan.workers[rank].slots
        self.module: nn.Module
        kind, options = OPTIMIZERS[made.optimizer]
        if job.plan.zero:
            self.module = _sharded(made.module, job.layers, job.plan.zero == 3)
        else:
            bucket = job.plan.synchronisation.bucket_bytes / 2**20
            self.module = DistributedDataParallel(
                made.module,
                bucket_cap_mb=max(1, round(bucket)),
                gradient_as_bucket_view=True,
                init_sync=False,  # every rank has made the same weights from the seed
            )
        self.optimizer = kind(list(made.module.parameters()), **options)

    def gradients_of_step(self) -> None:
        """Stages 0 and 1 reduce at the last micro-batch only, 2 and 3 at each."""
        samples = self.plan.micro_batch_samples
        micro_batches = [slot.micro_batch for slot in self.slots if slot.kind == FORWARD]
        for index in micro_batches:
            with self._synchronised(index == micro_batches[-1]):
                loss = self.module(*self.made.micro_batch(index, samples)) / len(micro_batches)
                loss.backward()

    def _synchronised(self, last: bool) -> contextlib.AbstractContextManager[Any]:
        if isinstance(self.module, DistributedDataParallel):
            return contextlib.nullcontext() if last else self.module.no_sync()
        if isinstance(self.module, FSDPModule) and self.plan.zero < 3:
            self.module.set_requires_gradient_sync(last or self.plan.zero == 2)
            self.module.set_reshard_after_backward(last)
        return contextlib.nullcontext()

    def gradients(self) -> dict[str, Tensor]:
        return {name: _whole(value) for name, value in self.made.gradients().items()}

    def weights(self) -> dict[str, Tensor]:
        return {name: _whole(value.detach()) for name, value in self.made.module.named_parameters()}

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()

    def step(self) -> None:
        self.gradients_of_step()
        self.update()


def _whole(value: Tensor) -> Tensor:
    return value.full_tensor() if isinstance(value, DTensor) else value


def _sharded(module: nn.Module, layers: tuple[str, ...], reshard: bool) -> nn.Module:
    """Each layer that holds parameters of its own is gathered by itself, the rest with the root.

    Stage 2 keeps the gathered weights from forward to backward, stage 3 drops them in between. A module whose
    parameter is shared with another layer (a tied embedding) stays with the root, which gathers it once.
    """
    device = next(module.parameters()).device.type
    mesh = mesh_of(dist.new_group(), device)
    owners: dict[nn.Parameter, set[str]] = {}
    modules = dict(module.named_modules(remove_duplicate=False))
    present = [name for name in modules if unwrapped(name) in set(layers)]
    for name in present:
        for parameter in modules[name].parameters():
            owners.setdefault(parameter, set()).add(name)
    for name in present:
        parameters = list(modules[name].parameters())
        if parameters and all(owners[parameter] == {name} for parameter in parameters):
            fully_shard(modules[name], mesh=mesh, reshard_after_forward=reshard)
    root: FSDPModule = fully_shard(module, mesh=mesh, reshard_after_forward=reshard)
    assert isinstance(root, nn.Module)
    return root
