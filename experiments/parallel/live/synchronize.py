"""Parameters that several ranks hold: their gradients are summed in buckets and their updates agree.

ZeRO stage 0 all-reduces a bucket and updates it everywhere. Stage 1 (Rajbhandari et al., SC'20, section 5.1)
reduces to each rank its part of the bucket, updates that part alone, and gathers the updated weights.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from experiments.parallel.live.model import OPTIMIZERS


def local(value: Tensor) -> Tensor:
    """A rank's part of a cut tensor; a plain one as it is."""
    return value.to_local() if isinstance(value, DTensor) else value


def cut_as(value: Tensor, part: Tensor) -> Tensor:
    """This rank's ``part`` as a tensor that is cut as ``value`` is."""
    if not isinstance(value, DTensor):
        return part
    return DTensor.from_local(part, value.device_mesh, value.placements, run_check=False)


def complete_gradient(parameter: nn.Parameter) -> Tensor:
    """Return this rank's part of a gradient.

    One that is a part of a sum over the tensor-parallel ranks is summed first.
    """
    gradient = parameter.grad
    if gradient is None:
        return torch.zeros_like(local(parameter.data))
    if isinstance(gradient, DTensor) and isinstance(parameter.data, DTensor):
        return local(gradient.redistribute(placements=parameter.data.placements))
    return gradient


class Bucket:
    """Parameters of one group of ranks as one flat vector of their values on this rank."""

    def __init__(
        self, parameters: Mapping[str, nn.Parameter], group: dist.ProcessGroup | None, zero: int
    ) -> None:
        self.parameters, self.group = dict(parameters), group
        self.shards = dist.get_world_size(group) if group is not None and zero else 1
        if self.shards == 1:
            self.states = [nn.Parameter(local(p.data)) for p in parameters.values()]
        else:
            own = self._own(self._flat(local(p.data) for p in parameters.values()))
            self.states = [nn.Parameter(own.clone())]

    def _flat(self, values: Iterable[Tensor]) -> Tensor:
        """One vector, padded to equal shards."""
        flat = torch.cat([value.reshape(-1) for value in values])
        return nn.functional.pad(flat, (0, -flat.numel() % self.shards))

    def _own(self, flat: Tensor) -> Tensor:
        return flat.chunk(self.shards)[dist.get_rank(self.group)]

    def reduce(self) -> None:
        """Gradients of the whole step go to what this rank updates."""
        gradients = [complete_gradient(parameter) for parameter in self.parameters.values()]
        for parameter in self.parameters.values():
            parameter.grad = None
        if self.group is None:
            self._give(gradients)
            return
        flat = self._flat(gradients)
        if self.shards == 1:
            dist.all_reduce(flat, group=self.group)
            self._give(self._split(flat))
        else:
            own = torch.empty_like(self.states[0])
            dist.reduce_scatter_tensor(own, flat, group=self.group)
            self._give([own])

    def _give(self, gradients: list[Tensor]) -> None:
        for state, gradient in zip(self.states, gradients, strict=True):
            state.grad = gradient

    def _split(self, flat: Tensor) -> list[Tensor]:
        like = [local(parameter.data) for parameter in self.parameters.values()]
        ends = itertools.accumulate(value.numel() for value in like)
        return [flat[end - value.numel() : end].view_as(value) for end, value in zip(ends, like, strict=True)]

    def share(self) -> None:
        """Updated shards come together; whole parameters were updated where they stand."""
        if self.shards > 1:
            for parameter, value in zip(
                self.parameters.values(), self._gather(self.states[0].data), strict=True
            ):
                local(parameter.data).copy_(value)

    def _gather(self, own: Tensor) -> list[Tensor]:
        flat = own.new_empty(own.numel() * self.shards)
        dist.all_gather_into_tensor(flat, own, group=self.group)
        return self._split(flat)

    def gradients(self) -> dict[str, Tensor]:
        """After ``reduce``, by name, cut as their parameters are."""
        found = [state.grad for state in self.states if state.grad is not None]
        parts = self._gather(found[0]) if self.shards > 1 else found
        return {
            name: cut_as(value.data, part)
            for (name, value), part in zip(self.parameters.items(), parts, strict=True)
        }


class Synchronizer:
    """All parameters of a rank, their buckets and their optimizer.

    ``sharers`` are the ranks that hold replicas of each parameter, ``ties`` those that hold a copy for
    another stage, ``groups`` the process groups of those sets that are several.
    """

    def __init__(
        self,
        parameters: dict[str, nn.Parameter],
        sharers: Mapping[str, tuple[int, ...]],
        ties: Mapping[str, tuple[int, ...]],
        groups: Mapping[tuple[int, ...], dist.ProcessGroup],
        zero: int,
        bucket_bytes: float,
        optimizer: str,
    ) -> None:
        self.tied = [(parameters[name], groups[ranks]) for name, ranks in sorted(ties.items()) if ranks]
        self.buckets = [
            Bucket({name: parameters[name] for name in names}, groups.get(sharers[names[0]]), zero)
            for names in _fill_buckets(parameters, sharers, bucket_bytes)
        ]
        kind, options = OPTIMIZERS[optimizer]
        states: list[Any] = [state for bucket in self.buckets for state in bucket.states]
        self.optimizer = kind(states, **options) if states else None

    def reduce(self) -> None:
        """Tied copies first, which makes them alike, then each with its replicas."""
        for parameter, group in self.tied:
            gradient = complete_gradient(parameter)
            dist.all_reduce(gradient, group=group)
            parameter.grad = cut_as(parameter.data, gradient)
        for bucket in self.buckets:
            bucket.reduce()

    def gradients(self) -> dict[str, Tensor]:
        return {name: value for bucket in self.buckets for name, value in bucket.gradients().items()}

    def update(self) -> None:
        if self.optimizer is not None:  # a stage may be a loss alone
            self.optimizer.step()
            self.optimizer.zero_grad()
        for bucket in self.buckets:
            bucket.share()


def _fill_buckets(
    parameters: dict[str, nn.Parameter], sharers: Mapping[str, tuple[int, ...]], bucket_bytes: float
) -> list[list[str]]:
    """Names of each bucket, the model's last first, those of the same ranks together until a bucket is full.

    All ranks go through the sets of ranks in the same order, so that none waits for one that waits for it.
    """
    found: list[list[str]] = []
    last_first = list(reversed(parameters))
    names = sorted(last_first, key=sharers.__getitem__)
    for _, members in itertools.groupby(names, key=sharers.__getitem__):
        filled = bucket_bytes
        for name in members:
            if filled >= bucket_bytes:
                found.append([])
                filled = 0.0
            found[-1].append(name)
            filled += local(parameters[name].data).nbytes
    return found
