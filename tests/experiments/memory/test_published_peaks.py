"""Quick rows of ``suite memory-published``: a peak, and what one technique of a table saves."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from experiments.core.spec import load_spec
from experiments.core.suites import load_suite
from experiments.core.units import GIB
from experiments.profiling.capture import few_blocks
from experiments.profiling.program import fake_program
from experiments.run import run
from experiments.sources import model_of

pytestmark = [pytest.mark.torch, pytest.mark.slow]
SUITE = load_suite("memory-published")


def peak(title: str) -> float:
    outcome = run(load_spec(dict(dict(SUITE.runs)[title])))
    assert outcome.status == "ok", outcome.reason
    return float(outcome.metrics["peak_memory"]["value"])


def test_every_row_that_says_enough_is_counted() -> None:
    counted = [title for title in SUITE.published if title not in SUITE.reservations]
    assert len(counted) == 16 and len(SUITE.published) == 60
    assert {title for title, _ in SUITE.runs} >= set(counted)


def test_every_row_is_a_step_that_can_be_built() -> None:
    """With as few blocks as a pattern needs; a target that no layer has is refused here."""
    for title, row in SUITE.runs:
        source, _ = model_of(load_spec(dict(row)).workload)
        made, _ = fake_program(few_blocks(source)[0])
        adapted = "adapter" in row["workload"]["options"]
        assert bool(made.frozen) == adapted, title


def test_adapters_of_a_small_llama_hold_what_was_published() -> None:
    title = "litgpt: Llama-3.2-1B, LoRA"
    assert peak(title) == pytest.approx(SUITE.published[title], rel=SUITE.within)


def test_saved_inputs_on_the_host_save_what_was_published() -> None:
    """Of two rows of torchtune's table: 23.1 and 21.8 GiB."""
    kept = peak("torchtune: Llama-3.2-3B, full, checkpointed, update in the backward pass")
    sent = peak("torchtune: Llama-3.2-3B, full, saved inputs on the host")
    assert kept == pytest.approx(23.1 * GIB, rel=0.02)
    assert (kept - sent) / GIB == pytest.approx(1.3, abs=0.1)
