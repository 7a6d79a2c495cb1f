"""Our Triton matmul against cuBLAS on this GPU.

How much of its speed, and whether both multiply the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from experiments.compilation.live.agreement import TOLERANCE
from experiments.compilation.live.backends.base import unsupported_backend
from experiments.compilation.live.triton_kernels.interpreter import is_installed


@dataclass(frozen=True)
class MatmulRate:
    """Median seconds of one product by each, and the largest difference over the largest result."""

    triton: float
    cublas: float
    difference: float
    tolerance: float

    @property
    def share(self) -> float:
        """Our speed as a share of cuBLAS's."""
        return self.cublas / self.triton

    @property
    def agrees(self) -> bool:
        return self.difference <= self.tolerance


def beside_cublas(size: int, dtype: str) -> MatmulRate:
    """Square matrices of ``size``.

    ``Infeasible`` where there is no GPU or no Triton. float32 is not cut to TF32.
    """
    if not torch.cuda.is_available():
        raise unsupported_backend("there is no NVIDIA GPU", "triton matmul")
    if not is_installed():
        raise unsupported_backend("Triton is not installed (CUDA builds of torch bring it)", "triton matmul")
    from triton.testing import do_bench

    from experiments.compilation.live.triton_kernels import tuning

    generator = torch.Generator("cuda").manual_seed(0)
    kind = getattr(torch, dtype)
    a, b = (torch.randn(size, size, generator=generator, device="cuda").to(kind) for _ in range(2))
    ours, theirs = tuning.matmul(a, b), a @ b
    difference = float((ours.double() - theirs.double()).abs().max() / theirs.double().abs().max())
    seconds = [
        float(do_bench(call, return_mode="median")) / 1e3
        for call in (lambda: tuning.matmul(a, b), lambda: a @ b)
    ]
    return MatmulRate(seconds[0], seconds[1], difference, TOLERANCE[kind])
