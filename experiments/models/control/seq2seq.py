"""Sequence to sequence: Rammer's encoder and decoder of fixed lengths, Cocktailer's decoder that stops by
itself.

Rammer's (OSDI 2020 artifact): 8 LSTM layers read 100 steps, 4 layers write 30, all 128 wide; the last hidden
state of the encoder is the decoder's first input. Cocktailer's decoder (OSDI 2023 artifact): 256 wide, 3,797
words, 50 steps at most; it ends when every sentence of the batch has ended, which only the data decide.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from experiments.models.control.constructs import Loop, State, at_step
from experiments.models.control.recurrent import LstmCell, MergedLstmCell, Stack
from experiments.models.model import Geometry, InputSpec, Model, Objective, classification

END, START = 0, 1
#: Stands for what training learns: with noise of N(0, 1) on 3,797 words, a sentence ends after about ten.
END_BIAS = 2.3


class Writing(Stack):
    """One decoder step: the state is the last output, then hidden states and cells."""

    def forward(self, step: int | Tensor, *state: Tensor) -> State:
        made = self.through(state[0], state[1:])
        return (made[len(self.cells) - 1].clone(), *made)


class EncoderDecoder(nn.Module):
    """[steps, batch, hidden] in, the decoder's last output [batch, hidden] out."""

    def __init__(self, encoders: int, decoders: int, hidden: int, written: int) -> None:
        super().__init__()
        self.encoders, self.decoders, self.hidden = encoders, decoders, hidden
        self.encoder = Loop(Stack([MergedLstmCell(hidden, hidden) for _ in range(encoders)]))
        self.decoder = Loop(Writing([MergedLstmCell(hidden, hidden) for _ in range(decoders)]), trips=written)

    def forward(self, series: Tensor) -> Tensor:
        zero = series.new_zeros(series.shape[1], self.hidden)
        read = self.encoder((series,), tuple(zero.clone() for _ in range(2 * self.encoders)))
        first = (read[self.encoders - 1], *(zero.clone() for _ in range(2 * self.decoders)))
        last: Tensor = self.decoder((), first)[0]
        return last


def seq2seq(geometry: Geometry, encoders: int, decoders: int, hidden: int, written: int) -> Model:
    series = InputSpec("series", (geometry.sequence, geometry.batch, hidden), samples=1)
    body = EncoderDecoder(encoders, decoders, hidden, written)
    return Model(Objective(body, classification), (series, InputSpec("target", (geometry.batch,), hidden)))


class Greedy(nn.Module):
    """One word: ``words`` and ``written`` [steps, batch] are the last words and all of them so far."""

    def __init__(self, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.cell = LstmCell(hidden, hidden)
        self.out = nn.Linear(hidden, vocabulary)
        with torch.no_grad():
            self.out.bias[END] = END_BIAS

    def forward(self, step: int | Tensor, noise: Tensor, *state: Tensor) -> State:
        words, written, hidden, cell = state
        hidden, cell = self.cell(self.embedding(words), hidden, cell)
        words = (self.out(hidden) + at_step(noise, step)).argmax(-1)
        place = torch.as_tensor(step, device=words.device).reshape(1)
        return words, written.index_copy(0, place, words.unsqueeze(0)), hidden, cell


class NotEnded(nn.Module):
    """Whether any sentence of the batch still goes on."""

    def forward(self, words: Tensor, *others: Tensor) -> Tensor:
        going: Tensor = (words != END).any()
        return going


class GreedyDecoder(nn.Module):
    """Words [steps, batch] from ``hidden`` [batch, width] and ``noise`` [steps, batch, vocabulary].

    END follows the end.
    """

    def __init__(self, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.loop = Loop(Greedy(hidden, vocabulary), condition=NotEnded())

    def forward(self, hidden: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        words = torch.full((hidden.shape[0],), START, dtype=torch.int64, device=hidden.device)
        written = torch.full(noise.shape[:2], END, dtype=torch.int64, device=hidden.device)
        state = (words, written, hidden.clone(), torch.zeros_like(hidden))
        _, written, hidden, _ = self.loop((noise,), state)
        return written, hidden


def greedy_decoder(geometry: Geometry, hidden: int, vocabulary: int) -> Model:
    steps, batch = geometry.sequence, geometry.batch
    inputs = (InputSpec("hidden", (batch, hidden)), InputSpec("noise", (steps, batch, vocabulary), samples=1))
    return Model(Objective(GreedyDecoder(hidden, vocabulary), classification), inputs, targets=0)
