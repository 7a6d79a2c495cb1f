"""Names of a model's parts as its users know them, and parts that a step leaves as they are."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from experiments.core.errors import BadInput

#: Wrappers around a model: ``body`` has the loss beside it, ``inner`` holds a library's module.
WRAPPERS = ("body", "inner")


def strip_wrappers(path: str) -> str:
    """Return a module's or parameter's path without the wrappers around the model."""
    parts = path.split(".")
    while parts and parts[0] in WRAPPERS:
        parts.pop(0)
    return ".".join(parts)


def split_words(text: str) -> list[str]:
    """Return the words of a list that is written with commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def freeze(module: nn.Module, patterns: str) -> None:
    """Take the gradient from parameters whose names match one of ``patterns``, separated by commas.

    ``BadInput`` names a pattern that no parameter matches, and refuses to freeze all of them.
    """
    trained = {
        strip_wrappers(name): value for name, value in module.named_parameters() if value.requires_grad
    }
    for pattern in split_words(patterns):
        found = [name for name in trained if fnmatchcase(name, pattern)]
        if not found:
            some = ", ".join(list(trained)[:5])
            raise BadInput(f"{pattern!r:.80} freezes no parameter", "options.frozen", f"names such as {some}")
        for name in found:
            trained[name].requires_grad_(False)
    if trained and not any(value.requires_grad for value in trained.values()):
        raise BadInput(f"{patterns!r:.80} freezes all parameters", "options.frozen", "some left to train")


def own_attributes(module: nn.Module, attribute: str) -> dict[str, Any]:
    """Return what modules say of their own parameters in ``attribute``, a mapping, by the whole path."""
    found = {}
    for path, part in module.named_modules():
        values = getattr(part, attribute, {})
        found.update({f"{path}.{name}".removeprefix("."): value for name, value in values.items()})
    return found
