"""Signs of life, and places to cancel at, while torch builds a model or calls its modules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch.nn.modules.module import (
    register_module_forward_pre_hook,
    register_module_module_registration_hook,
)

from experiments.core.progress import Progress


@contextmanager
def report_modules(progress: Progress) -> Iterator[None]:
    """Report a sign of life to ``progress`` whenever a module gets a part or is called.

    The report may raise to cancel.
    """

    def show_life(*_: object) -> None:
        progress(0.0, "")

    hooks = register_module_module_registration_hook(show_life), register_module_forward_pre_hook(show_life)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
