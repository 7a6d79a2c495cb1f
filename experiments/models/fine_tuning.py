"""A model as it is fine-tuned: adapters beside some linear layers, frozen weights in fewer bits, or parts
frozen.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch import nn

from experiments.core.errors import BadInput
from experiments.core.options import ALL_LINEAR, FineTuning
from experiments.models.adapters import ADAPTERS, Matrix, matrix_of
from experiments.models.parts import split_words, strip_wrappers
from experiments.models.quantized import QuantizedLinear

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
#: Options that say how an adapter or what is beside it looks.
_OF_AN_ADAPTER = ("adapter_", "base")


def adapt(model: nn.Module, options: FineTuning, training: bool) -> None:
    """Freeze ``model`` and put the adapters of ``options`` beside its layers, in place; nothing without."""
    if options.adapter == "none":
        _refuse_options(options, "", "an adapter, lora or dora")
        return
    if not training:
        raise BadInput(f"{options.adapter} without training", "options.adapter", "none, or training true")
    if options.base == "plain":
        _refuse_options(options, "base", "a base of int8, nf4 or nf4-double")
    layers = _Layers(model)
    targets = layers.choose(options.adapter_targets, "adapter_targets")
    stored = layers.choose(options.base_targets, "base_targets") if options.base != "plain" else {}
    layers.refuse_shared(stored)
    _check_rank(options.adapter_rank, targets)
    model.requires_grad_(False)
    for path, matrix in stored.items():
        _replace(model, path, lambda base, m=matrix: QuantizedLinear(base, options.base, m.output_dimension))
    for path, matrix in targets.items():
        _replace(model, path, lambda base, m=matrix: ADAPTERS[options.adapter](base, m, options))


def _refuse_options(options: FineTuning, beginning: str, expected: str) -> None:
    for name, value in options.changes.items():
        if name.startswith(_OF_AN_ADAPTER) and name.startswith(beginning):
            raise BadInput(f"{name} {value!r:.80} belongs to nothing", f"options.{name}", expected)


def _check_rank(rank: int, targets: dict[str, Matrix]) -> None:
    for path, matrix in targets.items():
        smaller = min(matrix.inputs, matrix.outputs)
        if rank > smaller:
            what = f"rank {rank} for {strip_wrappers(path)} of {matrix.outputs} x {matrix.inputs}"
            raise BadInput(what, "options.adapter_rank", f"1 to {smaller}")


def _replace(model: nn.Module, path: str, make: Any) -> None:
    parent, _, name = path.rpartition(".")
    holder = model.get_submodule(parent)
    setattr(holder, name, make(getattr(holder, name)))


class _Layers:
    """Linear layers of a model by path. Its head is the last of them, or has an embedding's weight."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        found = {path: matrix_of(part) for path, part in model.named_modules()}
        self.linear = {path: matrix for path, matrix in found.items() if matrix is not None}
        self.holders = Counter(
            id(value) for part in model.modules() for value in part.parameters(recurse=False)
        )

    def choose(self, words: str, option: str) -> dict[str, Matrix]:
        """Return the layers that ``words`` name: by their whole path or its end, as ``peft`` does."""
        chosen = [path for word in split_words(words) for path in self._find(word, option)]
        if not chosen:
            where = f"options.{option}"
            raise BadInput(f"{words!r:.80} names no layer: there is none beside the head", where, self._names)
        return {path: self.linear[path] for path in self.linear if path in chosen}

    def _find(self, word: str, option: str) -> list[str]:
        if word == ALL_LINEAR:
            last = next(reversed(self.linear), None)
            return [path for path in self.linear if path != last and not self._is_shared(path)]
        found = [path for path in self.linear if _is_called(path, word)]
        if not found:
            convolution = any(
                isinstance(part, CONVOLUTIONS) and _is_called(path, word)
                for path, part in self.model.named_modules()
            )
            what = "is a convolution" if convolution else "names no linear layer"
            raise BadInput(f"{word!r:.80} {what}", f"options.{option}", self._names)
        return found

    @property
    def _names(self) -> str:
        names = dict.fromkeys(path.rpartition(".")[2] for path in self.linear)
        return "all-linear or some of " + ", ".join(names) if names else "a model with linear layers"

    def _is_shared(self, path: str) -> bool:
        return self.holders[id(self.model.get_submodule(path).weight)] > 1

    def refuse_shared(self, paths: dict[str, Matrix]) -> None:
        """Raise ``BadInput`` for a weight that another part of the model, an embedding, has too."""
        for path in filter(self._is_shared, paths):
            what = f"the weight of {strip_wrappers(path)} is the embedding's too"
            raise BadInput(what, "options.base_targets", "layers with a weight of their own")


def _is_called(path: str, word: str) -> bool:
    return f".{strip_wrappers(path)}".endswith(f".{word}")
