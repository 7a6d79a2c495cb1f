"""What the ranks of a measured run time besides their steps: whole passes, collectives, messages, sharded
weights, updates.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from experiments.parallel.live.places import mesh_of

#: Bytes of the collectives and messages that are timed, and how often each.
SIZES, TIMES = (2**10, 2**16, 2**20, 2**23), 7
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
#: Sharded layers: as many that caches do not hold them all, of so many bytes, and of so many rows that ranks
#: compute between two exchanges, as they do in a model.
UNITS, UNIT_SIZES, ROWS = 16, (2**10, 2**16, 2**20, 2**22), 128
#: No difference of two times counts as less.
LEAST = 1e-6


def seconds(run: Callable[[], object], device: str) -> float:
    """Of one ``run`` that all ranks begin together."""
    dist.barrier()
    start = time.perf_counter()
    run()
    if device != "cpu":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def in_turn(
    step: Callable[[], object], passes: Callable[[], object], steps: int, device: str
) -> Iterator[tuple[float, float]]:
    """Return seconds of a step, and of a micro-batch's passes of the whole model on every rank.

    On all ranks at once: what else the host does slows both alike.
    """
    for _ in range(steps):
        yield seconds(step, device), seconds(passes, device)


def timed_update(optimizer: torch.optim.Optimizer | None, device: str) -> float:
    """Return seconds of the rank's own optimizer step, with gradients of zero.

    Weights are no longer the run's afterwards.
    """
    found = [0.0]
    for _ in range(TIMES if optimizer is not None else 0):
        assert optimizer is not None
        for parameter in itertools.chain(*(group["params"] for group in optimizer.param_groups)):
            parameter.grad = torch.zeros_like(parameter)
        found.append(seconds(optimizer.step, device))
    return statistics.median(found[1:] or found)


def timed_messages(rank: int, device: str) -> list[dict[str, Any]]:
    """Return seconds of collectives among all ranks, and of messages between the first two.

    ``rank`` may only watch the latter.

    Weights that are gathered come from shards and go to parameters of their own, and gradients are brought
    together: a copy on either side, as every runner makes them.
    """
    rows = []
    for size in SIZES:
        whole = torch.zeros(size // 4, device=device)
        part = whole.chunk(dist.get_world_size())[0].clone()
        runs: dict[str, Callable[[], object]] = {
            "all_gather": lambda: _gather(whole, part),  # noqa: B023
            "reduce_scatter": lambda: _scatter(whole, part),  # noqa: B023
            "all_reduce": lambda: dist.all_reduce(whole),  # noqa: B023
            "send": lambda: _there_and_back(whole, rank),  # noqa: B023
        }
        for kind, run in runs.items():
            run()  # the first of a kind makes connections
            found = statistics.median(seconds(run, device) for _ in range(TIMES))
            rows.append(_row(kind, whole.nbytes, found / (2 if kind == "send" else 1)))
    return rows


def _row(kind: str, size: int, found: float) -> dict[str, Any]:
    return {"kind": kind, "size": size, "seconds": found}


def _gather(whole: Tensor, part: Tensor) -> Tensor:
    made = torch.empty_like(whole)
    dist.all_gather_into_tensor(made, part.clone())
    return made.clone()


def _scatter(whole: Tensor, part: Tensor) -> Tensor:
    made = torch.empty_like(part)
    dist.reduce_scatter_tensor(made, whole.clone())
    return made


def _there_and_back(tensor: Tensor, rank: int) -> None:
    if rank == 0:
        dist.send(tensor, 1)
        dist.recv(tensor, 1)
    elif rank == 1:
        dist.recv(tensor, 0)
        dist.send(tensor, 0)


def timed_units(device: str, tensors: int, reshard: bool) -> list[dict[str, Any]]:
    """Return seconds in which FSDP2 gathers a layer's weights and reduces its gradients.

    ``tensors`` of them, with its hooks, buffers and copies: by how much longer the passes of sharded
    layers are than those of whole ones. With ``reshard`` weights are dropped after the forward pass and
    gathered again.
    """
    mesh = mesh_of(dist.new_group(), device)
    rows = []
    for size in UNIT_SIZES:
        width = math.isqrt(size // 4 // tensors)
        whole, cut = (_layers(width, tensors, device) for _ in range(2))
        _shard(cut, mesh, reshard)
        sample = torch.ones(ROWS, width, device=device)
        gathers, reduces = [], []
        for _ in range(TIMES):
            plain, sharded = (_forward_and_backward(layers, sample, device) for layers in (whole, cut))
            gathers.append(max(LEAST, (sharded[0] - plain[0]) / UNITS))
            again = gathers[-1] if reshard else 0.0
            reduces.append(max(LEAST, (sharded[1] - plain[1]) / UNITS - again))
        exchanged = 4 * tensors * width**2
        rows.append(_row("all_gather", exchanged, statistics.median(gathers)))
        rows.append(_row("reduce_scatter", exchanged, statistics.median(reduces)))
    return rows


def _layers(width: int, tensors: int, device: str) -> nn.Sequential:
    """``UNITS`` layers of ``tensors`` square weights each."""
    weights = [nn.Linear(width, width, bias=False, device=device) for _ in range(UNITS * tensors)]
    return nn.Sequential(*(nn.Sequential(*weights[n * tensors : (n + 1) * tensors]) for n in range(UNITS)))


def _shard(layers: nn.Sequential, mesh: DeviceMesh, reshard: bool) -> None:
    for part in (*layers, layers):
        fully_shard(part, mesh=mesh, reshard_after_forward=reshard)


def _forward_and_backward(layers: nn.Sequential, sample: Tensor, device: str) -> tuple[float, float]:
    made: list[Tensor] = []
    forward = seconds(lambda: made.append(layers(sample).sum()), device)
    backward = seconds(lambda: torch.autograd.backward(made), device)
    layers.zero_grad()
    return forward, backward
