"""Steps timed one after another; those that are compared take turns, so that a busy host slows them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from experiments.core.progress import Progress
from experiments.memory.live.moves import generator, generator_state


@dataclass
class TimedRunner:
    """One way to run the step, with ``seconds`` and ``losses`` of its steps.

    It has its own ``inputs`` and random numbers.
    """

    step: Callable[[list[Tensor]], Tensor]
    inputs: list[Tensor]
    device: str
    state: Tensor
    seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    @torch.no_grad()
    def once(self) -> None:
        with generator(self.state, self.device):
            start = time.perf_counter()
            loss = self.step(self.inputs)
            self.losses.append(float(loss.float().mean()))  # reading the value waits for the device
            self.seconds.append(time.perf_counter() - start)
            self.state = generator_state(self.device)


def seeded_state(seed: int, device: str) -> Tensor:
    """The random state that ``seed`` gives."""
    torch.manual_seed(seed)
    return generator_state(device)


def take_turns(runners: Sequence[TimedRunner], steps: int, progress: Progress) -> None:
    """``steps`` steps of each, in turn."""
    for index in range(steps):
        for runner in runners:
            runner.once()
        progress((index + 1) / steps, f"step {index + 1} of {steps}")
