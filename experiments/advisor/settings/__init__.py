"""A plan as settings to copy: torch, DeepSpeed and Megatron-LM.

``recipe``     what all dialects are written from.
``torch``      FSDP2, tensor parallelism, ``torch.distributed.pipelining`` and checkpointing.
``deepspeed``  the configuration's JSON.
``megatron``   the arguments.

Each says beside its text what it has no setting for.
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.advisor.settings import deepspeed, megatron, torch
from experiments.advisor.settings.recipe import Recipe

__all__ = ["Recipe", "Settings", "settings_of"]


@dataclass(frozen=True)
class Settings:
    """One dialect: the text to copy, and what it cannot say."""

    dialect: str
    language: str
    text: str
    notes: tuple[str, ...]


def settings_of(recipe: Recipe) -> tuple[Settings, ...]:
    """Return the plan in every dialect."""
    return (
        Settings("torch", "python", torch.text(recipe), torch.notes(recipe)),
        Settings("DeepSpeed", "json", deepspeed.text(recipe), deepspeed.notes(recipe)),
        Settings("Megatron-LM", "shell", megatron.text(recipe), megatron.notes(recipe)),
    )
