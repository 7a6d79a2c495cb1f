"""Recurrent networks as loops over time: LSTM (Hochreiter and Schmidhuber 1997), NASRNN (Zoph and Le, ICLR
2017).

Sizes of the LSTM are those that Rammer measures (10 layers of 256, 100 steps, batch 1; OSDI 2020 artifact),
those of the NASRNN Cocktailer's (256, 1000 steps; OSDI 2023 artifact). The steps are the option ``sequence``,
few by default. Every gate has its own two products, as in both artifacts: that is what a compiler may merge
or run side by side. Rammer's other recurrent models use the cell with one product.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from experiments.models.control.constructs import Loop, State, at_step
from experiments.models.model import Geometry, InputSpec, Model, Objective, classification

NASRNN_GATES = 8
CLASSES = 10


class Gates(nn.Module):
    """``count`` affine maps of an input and a hidden state: ``x W_i + h U_i + b_i``, each [batch, hidden]."""

    def __init__(self, inputs: int, hidden: int, count: int) -> None:
        super().__init__()
        self.of_input = nn.ParameterList([_weight(inputs, hidden) for _ in range(count)])
        self.of_state = nn.ParameterList([_weight(hidden, hidden) for _ in range(count)])
        self.bias = nn.ParameterList([nn.Parameter(torch.zeros(hidden)) for _ in range(count)])

    def forward(self, x: Tensor, hidden: Tensor) -> list[Tensor]:
        triples = zip(self.of_input, self.of_state, self.bias, strict=True)
        return [x @ of_input + hidden @ of_state + bias for of_input, of_state, bias in triples]


def _weight(inputs: int, outputs: int) -> nn.Parameter:
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(inputs, outputs)))


class LstmCell(nn.Module):
    """Input, candidate, forget (bias 1) and output gate: hidden state and cell from their predecessors."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.gates = Gates(inputs, hidden, 4)

    def forward(self, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        enter, candidate, forget, leave = self.gates(x, hidden)
        cell = cell * torch.sigmoid(forget + 1.0) + torch.sigmoid(enter) * torch.tanh(candidate)
        return torch.tanh(cell) * torch.sigmoid(leave), cell


class MergedLstmCell(nn.Module):
    """The same cell with its eight products in one: ``[x, h] W + b``, split into the four gates."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.weight = _weight(inputs + hidden, 4 * hidden)
        self.bias = nn.Parameter(torch.zeros(4 * hidden))

    def forward(self, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        made = torch.cat((x, hidden), 1) @ self.weight + self.bias
        enter, candidate, forget, leave = made.chunk(4, 1)
        cell = cell * torch.sigmoid(forget + 1.0) + torch.sigmoid(enter) * torch.tanh(candidate)
        return torch.tanh(cell) * torch.sigmoid(leave), cell


class NasCell(nn.Module):
    """The cell that architecture search found.

    Eight gates, joined in pairs, the old cell added in one place.
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.gates = Gates(inputs, hidden, NASRNN_GATES)

    def forward(self, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        a, b, c, d, e, f, g, h = self.gates(x, hidden)
        first = torch.tanh(torch.sigmoid(a) * torch.relu(b))
        second = torch.tanh(torch.sigmoid(c) + torch.relu(d))
        third = torch.tanh(torch.tanh(e) * torch.sigmoid(f))
        fourth = torch.sigmoid(torch.tanh(g) + torch.sigmoid(h))
        cell = torch.tanh(first + cell) * second
        return torch.tanh(cell * torch.tanh(third + fourth)), cell


class Stack(nn.Module):
    """One step of cells in layers: the state is every layer's hidden state, then every layer's cell."""

    def __init__(self, cells: Sequence[nn.Module]) -> None:
        super().__init__()
        self.cells = nn.ModuleList(cells)

    def through(self, x: Tensor, state: Sequence[Tensor]) -> State:
        count = len(self.cells)
        hidden, cells = list(state[:count]), list(state[count:])
        for number, cell in enumerate(self.cells):
            hidden[number], cells[number] = cell(x, hidden[number], cells[number])
            x = hidden[number]
        return (*hidden, *cells)

    def forward(self, step: int | Tensor, series: Tensor, *state: Tensor) -> State:
        return self.through(at_step(series, step), state)


class Recurrent(nn.Module):
    """``series`` [steps, batch, inputs] through a stack of cells; logits of the last hidden state."""

    def __init__(self, cells: Sequence[nn.Module], hidden: int) -> None:
        super().__init__()
        self.layers, self.hidden = len(cells), hidden
        self.loop = Loop(Stack(cells))
        self.classifier = nn.Linear(hidden, CLASSES)

    def forward(self, series: Tensor) -> Tensor:
        zero = series.new_zeros(series.shape[1], self.hidden)
        last = self.loop((series,), tuple(zero.clone() for _ in range(2 * self.layers)))
        logits: Tensor = self.classifier(last[self.layers - 1])
        return logits


def _model(geometry: Geometry, cells: Sequence[nn.Module], hidden: int) -> Model:
    series = InputSpec("series", (geometry.sequence, geometry.batch, hidden), samples=1)
    batch = (series, InputSpec("target", (geometry.batch,), CLASSES))
    return Model(Objective(Recurrent(cells, hidden), classification), batch)


def lstm(geometry: Geometry, layers: int, hidden: int) -> Model:
    return _model(geometry, [LstmCell(hidden, hidden) for _ in range(layers)], hidden)


def nasrnn(geometry: Geometry, hidden: int) -> Model:
    return _model(geometry, [NasCell(hidden, hidden)], hidden)
