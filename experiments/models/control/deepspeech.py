"""DeepSpeech 2 (Amodei et al., ICML 2016) as Rammer measures it (OSDI 2020 artifact).

Two convolutions of 32 filters (41 x 11, stride 2 x 2; 21 x 11, stride 2 x 1) over 300 frames of 171
frequencies, seven LSTM layers of 256 over the 75 steps that are left, and 29 characters for each.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from experiments.models.control.constructs import Loop, State, at_step
from experiments.models.control.recurrent import MergedLstmCell, Stack
from experiments.models.model import Geometry, InputSpec, Model, Objective, classification

FREQUENCIES, FILTERS, CHARACTERS = 171, 32, 29


def _convolution(inputs: int, kernel: tuple[int, int], stride: tuple[int, int]) -> nn.Sequential:
    padding = (kernel[0] // 2, kernel[1] // 2)
    convolution = nn.Conv2d(inputs, FILTERS, kernel, stride, padding, bias=False)
    return nn.Sequential(convolution, nn.ReLU6(), nn.BatchNorm2d(FILTERS))


class Recording(Stack):
    """One step whose output is kept: the state is all outputs so far, then hidden states and cells."""

    def forward(self, step: int | Tensor, series: Tensor, *state: Tensor) -> State:
        made = self.through(at_step(series, step), state[1:])
        place = torch.as_tensor(step, device=series.device).reshape(1)
        heard = state[0].index_copy(0, place, made[len(self.cells) - 1].unsqueeze(0))
        return (heard, *made)


class DeepSpeech(nn.Module):
    """``frames`` [batch, 1, time, frequencies] to [time / 4, batch, characters]."""

    def __init__(self, layers: int, hidden: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            _convolution(1, (41, 11), (2, 2)), _convolution(FILTERS, (21, 11), (2, 1))
        )
        inputs = FILTERS * ((FREQUENCIES + 1) // 2)
        cells = [MergedLstmCell(hidden if layer else inputs, hidden) for layer in range(layers)]
        self.layers, self.hidden = layers, hidden
        self.loop = Loop(Recording(cells))
        self.norm = nn.BatchNorm1d(hidden)
        self.classifier = nn.Linear(hidden, CHARACTERS)

    def forward(self, frames: Tensor) -> Tensor:
        seen = self.convolutions(frames)
        batch, _, steps, _ = seen.shape
        series = seen.permute(2, 0, 1, 3).reshape(steps, batch, -1)
        zero = series.new_zeros(batch, self.hidden)
        state = (
            series.new_zeros(steps, batch, self.hidden),
            *(zero.clone() for _ in range(2 * self.layers)),
        )
        heard = self.loop((series,), state)[0]
        logits: Tensor = self.classifier(self.norm(heard.reshape(steps * batch, -1)))
        return logits.reshape(steps, batch, CHARACTERS)


def deepspeech2(geometry: Geometry, layers: int, hidden: int) -> Model:
    """``sequence`` frames."""
    frames = InputSpec("frames", (geometry.batch, 1, geometry.sequence, FREQUENCIES))
    steps = (geometry.sequence + 3) // 4
    batch = (frames, InputSpec("target", (steps, geometry.batch), CHARACTERS, samples=1))
    return Model(Objective(DeepSpeech(layers, hidden), classification), batch)
