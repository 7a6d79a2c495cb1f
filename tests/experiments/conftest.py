"""What the domain's tests share."""

from __future__ import annotations

import functools
import importlib.util
import logging

import pytest

# torch writes a debug record for every fake tensor to this logger when it has a handler, and pytest gives one
# to each logger that does not propagate: captures would take ten times as long.
logging.getLogger("torch.__trace").addHandler = lambda handler: None  # type: ignore[method-assign]


@pytest.fixture(scope="session", autouse=True)
def _short_series() -> None:
    """Measured runs take their pairs of times in a moment: no test is about how sharp such a figure is."""
    if importlib.util.find_spec("torch"):
        from experiments.compilation.live import timing

        timing.SECONDS = dict.fromkeys(timing.SECONDS, 0.02)


@pytest.fixture(scope="session", autouse=True)
def _composite_ops_listed_once(_short_series: None) -> None:
    """The exporter lists anew, for each model, which of torch's ops may stay whole: a quarter of a small
    model's export. They are the same until somebody registers another.
    """
    if importlib.util.find_spec("torch"):
        import torch
        from torch.export import exported_program

        list_ops = exported_program._collect_all_valid_cia_ops
        kept = functools.lru_cache(maxsize=1)(lambda registered, namespaces: list_ops())

        def listed() -> set[object]:
            registered = torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
            return kept(tuple(registered), tuple(torch.ops._dir))

        exported_program._collect_all_valid_cia_ops = listed
