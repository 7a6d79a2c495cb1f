"""The loss of a language model's tokens: of all logits at once, or by chunks of tokens.

``chunked`` is torchtune's ``CEWithChunkedOutputLoss``: the logits of all chunks wait for the backward pass in
the weights' type, and one chunk at a time is float32. torchtune compiles a chunk's loss so that nothing in
float32 is saved; here ``ChunkLoss`` computes it again in the backward pass. ``fused`` is Liger's
``FusedLinearCrossEntropy``: a chunk's logits, loss and gradient are made and dropped before the next one's,
in the forward pass; the backward pass scales what came of it. The head may be any module: with a bias, with
an adapter beside it, or frozen. Both keep autograd's own order of operations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.core.errors import BadInput
from experiments.core.options import PLANNED_LOSSES, WorkloadOptions
from experiments.models.model import Model, Objective, classification

HALVES = (torch.float16, torch.bfloat16)
#: What a kernel, or a compiled graph, does with the logits of one chunk.
ChunkFunction = Callable[..., Any]


class TokenLoss(Protocol):
    """Mean cross entropy of ``head(states)`` [tokens, words] with ``target`` [tokens], by chunks.

    ``of_chunk`` takes one chunk's logits.
    """

    def __call__(
        self, head: nn.Module, states: Tensor, target: Tensor, chunks: int, of_chunk: ChunkFunction
    ) -> Tensor: ...


def with_loss(model: Model, options: WorkloadOptions, tokens: int) -> Model:
    """Return ``model`` with the loss that ``options`` ask for, over ``tokens`` at a time.

    ``BadInput`` where the model has no vocabulary head, or fewer tokens than chunks.
    """
    asked = [name for name in ("loss", "logits", "loss_chunks") if name in options.changes]
    if not asked:
        return model
    where = f"options.{asked[0]}"
    if not options.training:
        raise BadInput("a step without training has no loss", where, "the option left out")
    body = model.module.body if isinstance(model.module, Objective) else None
    if body is None or vocabulary_head(body) is None:
        raise BadInput("is for a language model with a vocabulary head", where, "the option left out")
    if options.loss in PLANNED_LOSSES:
        raise BadInput(f"loss {options.loss!r} is for parallel plans in closed form", where, "another loss")
    if options.loss == "whole":
        if "loss_chunks" in asked:
            raise BadInput("loss_chunks cut no whole loss", "options.loss_chunks", "loss chunked or fused")
        return replace(model, module=Objective(FullPrecisionLogits(body), classification))
    if options.loss_chunks > tokens:
        what = f"{options.loss_chunks} chunks of {tokens} tokens"
        raise BadInput(what, "options.loss_chunks", f"at most {tokens}")
    return replace(model, module=LossByChunks(body, *LOSSES[options.loss], options.loss_chunks))


def vocabulary_head(body: nn.Module) -> nn.Module | None:
    """Return the module that makes logits of a language model's last states.

    The model has it by the name ``transformers`` use.
    """
    getter = getattr(body, "get_output_embeddings", None)
    return cast("nn.Module | None", getter()) if getter else None


def upcast(logits: Tensor) -> Tensor:
    """16-bit logits in float32; wider ones as they are."""
    return logits.float() if logits.dtype in HALVES else logits


class FullPrecisionLogits(nn.Module):
    """A language model whose logits are float32, as torchtune's give them: no part of a compiled loss."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *inputs: Tensor) -> Tensor:
        return upcast(self.inner(*inputs))


class LossByChunks(Objective):
    """A body up to its head, and a loss that applies the head to ``chunks`` of tokens.

    It hands out no logits: torchtune drops its own before the backward pass, and Liger has none.
    """

    def __init__(self, body: nn.Module, take: TokenLoss, of_chunk: ChunkFunction, chunks: int) -> None:
        super().__init__(body, of_chunk)
        self._take, self._chunks = take, chunks

    def forward(self, *batch: Tensor) -> Any:
        if not self.training:
            return self.body(*batch)
        *inputs, target = batch
        head = vocabulary_head(self.body)
        assert head is not None
        states = states_before(head, self.body, inputs)
        if self._take is fused_loss and self.begin_backward is not None:
            self.begin_backward()
        return self._take(head, states.flatten(0, -2), target.flatten(), self._chunks, self._loss)

    def loss(self, output: Any, target: Tensor) -> Tensor:
        return classification(upcast(output), target)


def states_before(head: Any, body: nn.Module, inputs: Sequence[Tensor]) -> Tensor:
    """Run ``body`` and return what its last part, ``head``, would have been given."""
    given: list[Tensor] = []

    def pass_on(states: Tensor) -> Tensor:
        given.append(states)
        return states

    head.forward = pass_on
    try:
        output = body(*inputs)
    finally:
        del head.forward
    if [id(output)] != [id(states) for states in given]:
        raise BadInput("the model computes more after its head", "options.loss", "loss whole")
    return output  # type: ignore[no-any-return]


def chunked_loss(
    head: nn.Module, states: Tensor, target: Tensor, chunks: int, of_chunk: ChunkFunction
) -> Tensor:
    """The logits of every chunk live until its part of the backward pass."""
    sizes = chunk_sizes(len(target), chunks)
    pairs = zip(split(states, sizes), split(target, sizes), strict=True)
    losses = [of_chunk(head(part), labels) for part, labels in pairs]
    return cast(Tensor, functools.reduce(torch.add, losses) / len(target))


def fused_loss(
    head: nn.Module, states: Tensor, target: Tensor, chunks: int, of_chunk: ChunkFunction
) -> Tensor:
    """No logits of more than one chunk ever exist."""
    weights = {name: value for name, value in head.named_parameters() if value.requires_grad}
    sizes = chunk_sizes(len(target), chunks)
    apply: Any = FusedLoss.apply
    return cast(Tensor, apply(head, of_chunk, tuple(weights), sizes, target, states, *weights.values()))


def chunk_sizes(tokens: int, chunks: int) -> list[int]:
    """As even as can be, the larger ones first: what ``torch.tensor_split`` gives."""
    size, rest = divmod(tokens, chunks)
    return [size + 1] * rest + [size] * (chunks - rest)


def split(rows: Any, sizes: list[int]) -> tuple[Tensor, ...]:
    """Views of so many rows each."""
    parts: tuple[Tensor, ...] = rows.split(sizes)
    return parts


class ChunkLoss(torch.autograd.Function):
    """Sum of a chunk's cross entropies; the logits are all that is saved."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor) -> Tensor:
        ctx.save_for_backward(logits, target)
        return F.cross_entropy(upcast(logits), target, reduction="sum")

    @staticmethod
    def backward(ctx: Any, *scale: Tensor) -> Any:
        logits, target = ctx.saved_tensors
        chances = F.log_softmax(upcast(logits), dim=-1)
        return cross_entropy_gradient(chances, target, scale[0]).to(logits.dtype), None


def cross_entropy_gradient(log_chances: Tensor, target: Tensor, scale: Tensor) -> Tensor:
    """Return the logits' gradient of ``scale`` x their summed cross entropy.

    It is by autograd's own two ops; the second writes over what it reads element by element.
    """
    summed, ignored, count = 2, -100, torch.ones_like(scale)
    gradient = torch.ops.aten.nll_loss_backward(scale, log_chances, target, None, summed, ignored, count)
    backward = torch.ops.aten._log_softmax_backward_data.out
    return cast(Tensor, backward(gradient, log_chances, -1, log_chances.dtype, out=gradient))


def loss_of_chunk(logits: Tensor, target: Tensor) -> Tensor:
    """Sum of a chunk's cross entropies."""
    apply: Any = ChunkLoss.apply
    return cast(Tensor, apply(logits, target))


def loss_and_gradient(logits: Tensor, target: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
    """Sum of a chunk's cross entropies, and what its part of the mean over ``tokens`` gives the logits."""
    chances = F.log_softmax(upcast(logits), dim=-1)
    loss = F.nll_loss(chances, target, reduction="sum")
    scale = torch.ones_like(loss) / tokens
    return loss, cross_entropy_gradient(chances, target, scale).to(logits.dtype)


LOSSES: dict[str, tuple[TokenLoss, ChunkFunction]] = {
    "chunked": (chunked_loss, loss_of_chunk),
    "fused": (fused_loss, loss_and_gradient),
}


class FusedLoss(torch.autograd.Function):
    """Mean cross entropy of ``head(states)``, with its gradients made on the way.

    They are those of ``states`` and of the head's ``weights``.
    """

    @staticmethod
    def forward(
        ctx: Any,
        head: nn.Module,
        of_chunk: ChunkFunction,
        names: tuple[str, ...],
        sizes: list[int],
        target: Tensor,
        states: Tensor,
        *weights: Tensor,
    ) -> Tensor:
        chunk = _FusedChunk(head, of_chunk, dict(zip(names, weights, strict=True)), len(target))
        ctx.states = torch.empty_like(states)
        parts = zip(*(split(value, sizes) for value in (states, target, ctx.states)), strict=True)
        losses = [chunk.take(*part) for part in parts]
        ctx.weights = chunk.gradients
        return functools.reduce(torch.add, losses) / len(target)

    @staticmethod
    def backward(ctx: Any, *scale: Tensor) -> Any:
        """Scale the gradients in place, as nobody else has them."""
        weights = [gradient.mul_(scale[0]) for gradient in ctx.weights]
        found = (None, None, None, None, None, ctx.states.mul_(scale[0]), *weights)
        ctx.states, ctx.weights = None, []
        return found


class _FusedChunk:
    """One chunk after another: ``gradients`` are the sums so far of the head's weights."""

    def __init__(
        self, head: nn.Module, of_chunk: ChunkFunction, weights: dict[str, Tensor], tokens: int
    ) -> None:
        self.head, self.of_chunk, self.tokens = head, of_chunk, tokens
        self.weights = {name: value.detach().requires_grad_() for name, value in weights.items()}
        self.gradients: list[Tensor] = []

    def take(self, states: Tensor, target: Tensor, place: Tensor) -> Tensor:
        """Return the chunk's summed loss; the gradient of its ``states`` goes into ``place``."""
        states = states.detach().requires_grad_()
        with torch.enable_grad():
            logits = torch.func.functional_call(self.head, self.weights, (states,))
        edge = torch.autograd.graph.get_gradient_edge(logits)
        values = logits.detach()
        del logits
        loss, gradient = self.of_chunk(values, target, self.tokens)
        del values
        found, *made = torch.autograd.grad(edge, (states, *self.weights.values()), gradient)
        place.copy_(found)
        self._add(made)
        return cast(Tensor, loss)

    def _add(self, made: Sequence[Tensor]) -> None:
        if not self.gradients:
            self.gradients = list(made)
            return
        for total, gradient in zip(self.gradients, made, strict=True):
            total.add_(gradient)
