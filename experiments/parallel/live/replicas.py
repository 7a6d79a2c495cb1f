"""Data parallelism by torch: DDP, and FSDP2 for ZeRO's stages.

Stage 3 drops gathered weights after each pass. Stages 1 and 2 gather them once a step and keep them to its
end; stage 2 reduces gradients after each micro-batch, stage 1 after the last. Sharded layers go with FSDP2 on
a mesh of two axes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from experiments.core.errors import BadInput
from experiments.models.model import Objective
from experiments.parallel.interface import BETWEEN, FORWARD, OVERLAPPED
from experiments.parallel.interface.shards import SEQUENCE, output_cut_along
from experiments.parallel.live.job import Job
from experiments.parallel.live.micro_batch_graph import LOSS, unwrapped
from experiments.parallel.live.model import OPTIMIZERS, Built
from experiments.parallel.live.places import Places, mesh_of
from experiments.parallel.live.tensor import Sharded, vocabulary_parallel


class RankRunner(Protocol):
    """A rank's part of the step.

    ``exchange``      when it exchanges weights and gradients with others (``PlanningEstimate``).
    ``unit_tensors``  how many weights it gathers together where it does that between computations, else
      0.
    """

    @property
    def exchange(self) -> str: ...
    @property
    def unit_tensors(self) -> int: ...
    @property
    def optimizer(self) -> torch.optim.Optimizer | None: ...
    def gradients_of_step(self) -> None: ...
    def gradients(self) -> dict[str, Tensor]: ...
    def weights(self) -> dict[str, Tensor]: ...
    def update(self) -> None: ...
    def step(self) -> None: ...


class ReplicaRunner:
    """The whole model on every rank (or its shards), the rank's micro-batches in the order of its slots."""

    def __init__(self, job: Job, rank: int, made: Built) -> None:
        self.plan, self.made = job.plan, made
        places = Places(job.plan)
        self.slots = job.plan.workers[places.of_rank[rank].worker].slots
        self.tensors: Sharded | None = None
        data = None
        if len(job.plan.workers[0].devices) > 1:
            data = self._shard_layers(job, made.module)
        _compute_again(made.module, job)
        self.module: nn.Module
        kind, options = OPTIMIZERS[made.optimizer]
        if job.plan.zero:
            mesh = data or mesh_of(dist.new_group(), made.batch[0].device.type)
            self.module = _shard(made.module, job.layers, job.plan.zero == 3, mesh)
            if any(parameter.is_meta for parameter in made.module.parameters()):
                self.module.to_empty(device=made.batch[0].device)
        else:
            bucket = job.plan.synchronization.bucket_bytes / 2**20
            self.module = DistributedDataParallel(
                made.module,
                bucket_cap_mb=max(1, round(bucket)),
                gradient_as_bucket_view=True,
                init_sync=False,  # every rank has made the same weights from the seed
            )
        self.optimizer = kind(list(made.module.parameters()), **options)

    @property
    def exchange(self) -> str:
        """When weights and gradients are exchanged: overlapped with computation, or between passes.

        FSDP2 overlaps by streams, which a CPU has none of; DDP has a thread of its own.
        """
        streams = self.made.batch[0].is_cuda
        return OVERLAPPED if streams or not self.plan.zero else BETWEEN

    @property
    def unit_tensors(self) -> int:
        units = sum(isinstance(part, FSDPModule) for part in self.module.modules())
        tensors = sum(1 for _ in self.module.parameters())
        return max(1, round(tensors / units)) if units and self.exchange == BETWEEN else 0

    def _shard_layers(self, job: Job, module: nn.Module) -> DeviceMesh:
        """Layers are cut over the devices of a worker, whole between them; the mesh of the replicas is the
        answer.
        """
        shape = (len(job.plan.workers), len(job.plan.workers[0].devices))
        with unset_fake_temporarily():
            mesh = init_device_mesh(self.made.batch[0].device.type, shape, mesh_dim_names=("data", "tensor"))
            data, tensor = mesh["data"], mesh["tensor"]
        by_name = {job.layers[s.layer]: s for s in job.plan.shardings}
        if any(output_cut_along(s) == SEQUENCE for s in by_name.values()):
            raise BadInput(
                "the plan has ZeRO stage 2 or 3 beside sequence parallelism", "spec.mode", "simulated"
            )
        paths = [path for path, _ in module.named_modules() if unwrapped(path) in by_name]
        self.tensors = Sharded(module, job.plan, job.layers, paths, tensor)
        if LOSS in by_name:
            assert isinstance(module, Objective)
            module._loss = self.tensors.loss
        return data

    def gradients_of_step(self) -> None:
        """Stages 0 and 1 reduce at the last micro-batch only, 2 and 3 at each."""
        samples = self.plan.micro_batch_samples
        micro_batches = [slot.micro_batch for slot in self.slots if slot.kind == FORWARD]
        for index in micro_batches:
            with (
                self._gradient_synchronization(index == micro_batches[-1]),
                vocabulary_parallel(self.tensors),
            ):
                loss = self.module(*self.made.micro_batch(index, samples)) / len(micro_batches)
                loss.backward()

    def _gradient_synchronization(self, last: bool) -> contextlib.AbstractContextManager[Any]:
        if isinstance(self.module, DistributedDataParallel):
            return contextlib.nullcontext() if last else self.module.no_sync()
        if isinstance(self.module, FSDPModule) and self.plan.zero < 3:
            self.module.set_requires_gradient_sync(last or self.plan.zero == 2)
            self.module.set_reshard_after_backward(last)
        return contextlib.nullcontext()

    def gradients(self) -> dict[str, Tensor]:
        return {name: self._whole(name, value) for name, value in self.made.gradients().items()}

    def weights(self) -> dict[str, Tensor]:
        return {name: self._whole(name, p.detach()) for name, p in self.made.module.named_parameters()}

    def _whole(self, name: str, value: Tensor) -> Tensor:
        if self.tensors is not None:
            return self.tensors.whole(name, value)
        return value.full_tensor() if isinstance(value, DTensor) else value

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()

    def step(self) -> None:
        self.gradients_of_step()
        self.update()


def _compute_again(module: nn.Module, job: Job) -> None:
    """Modules keep their inputs only; the loss, which is no module, likewise."""
    again = {job.layers[layer] for layer in job.plan.recompute}
    for path, part in module.named_modules():
        if unwrapped(path) in again:
            part.forward = _checkpoint(part.forward)
    if LOSS in again and isinstance(module, Objective):
        module._loss = _checkpoint(module._loss)


def _checkpoint(function: Callable[..., Any]) -> Callable[..., Any]:
    """As planned: all of it again, not only up to the last tensor that is missed."""

    def run(*arguments: Any, **keywords: Any) -> Any:
        with set_checkpoint_early_stop(False):
            return checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False, **keywords)

    return run


def _shard(module: nn.Module, layers: tuple[str, ...], reshard: bool, mesh: DeviceMesh) -> nn.Module:
    """Each layer that holds parameters of its own is gathered by itself, the rest with the root.

    Stage 2 keeps the gathered weights from forward to backward, stage 3 drops them in between. A module whose
    parameter is shared with another layer (a tied embedding) stays with the root, which gathers it once.
    """
    owners: dict[nn.Parameter, set[str]] = {}
    modules = dict(module.named_modules(remove_duplicate=False))
    present = [name for name in modules if unwrapped(name) in set(layers)]
    for name in present:
        for parameter in modules[name].parameters():
            owners.setdefault(parameter, set()).add(name)
    with unset_fake_temporarily():  # where tensors are fake the weights are still on "meta"
        for name in present:
            parameters = list(modules[name].parameters())
            if parameters and all(owners[parameter] == {name} for parameter in parameters):
                fully_shard(modules[name], mesh=mesh, reshard_after_forward=reshard)
        root: FSDPModule = fully_shard(module, mesh=mesh, reshard_after_forward=reshard)
    assert isinstance(root, nn.Module)
    return root
