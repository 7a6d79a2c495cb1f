"""Data parallelism by torch: DDP, DDP with ZeroRedundancyOptimizer (ZeRO 1), FSDP2 (ZeRO 2 and 3)."""

from __future__ import annotations

import contextlib
from typing import Any, Protocol

from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from experiments.parallel.interface import FORWARD
from experiments.parallel.live.cut import unwrapped
from experiments.parallel.live.job import Job
from experiments.parallel.live.model import OPTIMIZERS, Built


class Runner(Protocol):
    """A rank's part of the step."""

    def gradients_of_step(self) -> None: ...
    def gradients(self) -> dict[str, Tensor]: ...
    def update(self) -> None: ...
    def step(self) -> None: ...


class ReplicaRunner:
    """The whole model on every rank (or its shards), the rank's micro-batches in the order of its slots."""

    def __init__(self, job: Job, rank: int, made: Built) -> None:
        self.plan, self.made = job.plan, made
        self.slots = job.plan.workers[rank].slots
        self.module: nn.Module
        kind, options = OPTIMIZERS[made.optimizer]
        if job.plan.zero >= 2:
            self.module = _sharded(made.module, job.layers, job.ranks, job.plan.zero == 3)
        else:
            bucket = job.plan.synchronisation.bucket_bytes / 2**20
            self.module = DistributedDataParallel(
                made.module, bucket_cap_mb=max(1, round(bucket)), gradient_as_bucket_view=True
            )
        parameters = list(made.module.parameters())
        self.optimizer = kind(parameters, **options)
        if job.plan.zero == 1:
            self.optimizer = ZeroRedundancyOptimizer(parameters, type(self.optimizer), **options)

    def gradients_of_step(self) -> None:
        """DDP reduces at the last micro-batch only, FSDP at each, as plans of ZeRO stages 2 and 3 say."""
        samples = self.plan.micro_batch_samples
        micro_batches = [slot.micro_batch for slot in self.slots if slot.kind == FORWARD]
        for index in micro_batches:
            with self._synchronised(index == micro_batches[-1]):
                loss = self.module(*self.made.micro_batch(index, samples)) / len(micro_batches)
                loss.backward()

    def _synchronised(self, last: bool) -> contextlib.AbstractContextManager[Any]:
        if isinstance(self.module, DistributedDataParallel) and not last:
            return self.module.no_sync()
        return contextlib.nullcontext()

    def gradients(self) -> dict[str, Tensor]:
        found = self.made.gradients().items()
        return {name: g.full_tensor() if hasattr(g, "full_tensor") else g for name, g in found}

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()

    def step(self) -> None:
        self.gradients_of_step()
        self.update()


def _sharded(module: nn.Module, layers: tuple[str, ...], ranks: int, reshard: bool) -> nn.Module:
    """Each layer that holds parameters of its own is gathered by itself, the rest with the root.

    Stage 2 keeps the gathered weights from forward to backward, stage 3 drops them in between. A module whose
    parameter is shared with another layer (a tied embedding) stays with the root, which gathers it once.
    """
    device = next(module.parameters()).device.type
    mesh = init_device_mesh(device, (ranks,))
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
