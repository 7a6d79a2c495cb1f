"""Why a request is refused when it arrives, whatever policy would serve it.

The engine knows how long an answer will be; policies do not, so that no work is lost on what never fits.
"""

from __future__ import annotations


def over_context(prompt: int, context: int | None) -> str:
    """Return why a prompt is refused by a model of ``context`` tokens; empty where it is not."""
    if context is None or prompt <= context:
        return ""
    return f"its prompt of {prompt} tokens is over the model's context of {context}"


def over_memory(prompt: int, output: int, slots: int) -> str:
    """Return the words for a request that an empty memory of ``slots`` tokens does not hold."""
    return f"its {prompt} and {output} tokens are larger than all KV memory ({slots} tokens)"
