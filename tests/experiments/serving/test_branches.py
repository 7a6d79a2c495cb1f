"""Several answers to a prompt: blocks that they share, copies before they write, beams that go on or end."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.spec import load_spec
from experiments.run import run
from experiments.serving.interface import violations
from experiments.serving.interface.blocks import BlockPool
from experiments.serving.interface.branched_view import BranchedView
from experiments.serving.interface.branches import Branches
from experiments.serving.simulator import figures
from tests.experiments.serving.traces import answered, requests, serve_paged


def view(count: int, beams: bool = False, blocks: int = 100, prompt: int = 6) -> BranchedView:
    """One request whose prompt is computed, in blocks of four tokens."""
    made = BranchedView(
        now=0.0,
        prompt=[prompt],
        known=[prompt],
        computed=[0],
        pool=BlockPool(blocks, 4),
        keys=[()],
        caching=False,
        branches=Branches(count, beams),
        rng=np.random.default_rng(0),
    )
    made.waiting.append(0)
    made.begin(0.0)
    made.admit(0, prompt)
    return made


def decode(made: BranchedView) -> bool:
    made.known[0] += 1
    made.begin(0.0)
    return made.extend(0, 1)


def test_the_last_block_of_a_prompt_is_copied_for_all_but_one() -> None:
    """Six tokens are two blocks; then two sequences have the first in common, the second each for itself."""
    made = view(2)
    assert made.pool.used == 2
    used = []
    for _ in range(4):
        assert decode(made)
        used.append((made.pool.used, made.logical_blocks))
    assert used == [(3, 4), (3, 4), (5, 6), (5, 6)]
    assert [entry.tokens for entry in made.entries] == [1, 1] and made.entries[0].context == 9
    made.finish(0)
    assert made.pool.used == 0


def test_a_prompt_of_full_blocks_is_not_copied() -> None:
    made = view(3, prompt=8)
    assert decode(made)
    assert (made.pool.used, made.logical_blocks) == (2 + 3, 3 * 3)


def test_no_sequence_goes_on_where_blocks_for_all_lack() -> None:
    made = view(4, blocks=4)
    assert not decode(made) and made.entries == []
    assert decode(view(3, blocks=4))


@settings(max_examples=60)
@given(count=st.integers(2, 5), beams=st.booleans(), prompt=st.integers(1, 12), steps=st.integers(1, 30))
def test_whoever_writes_has_the_block_alone_and_references_are_those_of_tables(
    count: int, beams: bool, prompt: int, steps: int
) -> None:
    made = view(count, beams, prompt=prompt, blocks=200)
    for _ in range(steps):
        assert decode(made)
        tables = made.tables[0]
        place = (made.computed[0] - 1) // 4
        assert len({table[place] for table in tables}) == count
        assert all(made.pool.references(table[place]) == 1 for table in tables)
        held = [block for table in tables for block in table]
        assert all(made.pool.references(block) == held.count(block) for block in held)
        assert made.pool.used == len(set(held)) <= made.logical_blocks == len(held)
        assert all(len(table) == -(-made.computed[0] // 4) for table in tables)
    made.finish(0)
    assert made.pool.used == 0


@settings(max_examples=60)
@given(count=st.integers(2, 5), beams=st.booleans(), prompt=st.integers(1, 12), output=st.integers(1, 30))
def test_what_a_request_needs_at_its_end_is_known_before(
    count: int, beams: bool, prompt: int, output: int
) -> None:
    """Of independent answers exactly; beams share as chance has it, and need no less."""
    made = view(count, beams, prompt=prompt, blocks=200)
    for _ in range(output - 1):
        assert decode(made)
    need = made.least_blocks(prompt, output)
    assert need <= made.pool.used if beams else need == made.pool.used


def test_beams_that_outgrow_all_memory_are_refused_with_their_reason() -> None:
    """Four beams of 44 tokens: 10 full blocks that they may share and one for each are 14; drawn, 18."""
    reasons = {}
    for blocks in (13, 14, 18):
        plan = serve_paged(
            requests((0, 5, 40)), "vllm_paged", blocks=blocks, sequences=4, decoding="beam", watermark=0.0
        )
        reasons[blocks] = plan.served[0].reason
    assert reasons == {
        13: "its 5 and 40 tokens are larger than all KV memory (52 tokens)",
        14: "its sequences are larger than all KV memory",
        18: "",
    }


def test_what_is_on_the_host_comes_back_with_its_sharing() -> None:
    made = view(3, beams=True)
    made.host_blocks = 50
    for _ in range(9):
        decode(made)
    made.begin(0.0)
    used, logical = made.pool.used, made.logical_blocks
    assert made.swap_out(0) and made.pool.used == 0 and made.host_blocks == 50 - used
    assert made.swap_in(0)
    assert (made.pool.used, made.logical_blocks, made.host_blocks) == (used, logical, 50)
    assert decode(made)


rows = st.lists(
    st.tuples(st.integers(0, 300), st.integers(1, 20), st.integers(1, 12)), min_size=1, max_size=12
).map(sorted)


@settings(max_examples=60)
@given(
    rows=rows,
    count=st.integers(2, 4),
    beam=st.booleans(),
    blocks=st.integers(30, 80),
    host=st.integers(0, 40),
)
def test_every_request_is_answered_and_all_blocks_come_back(
    rows: list[tuple[int, int, int]], count: int, beam: bool, blocks: int, host: int
) -> None:
    """Also where memory lacks and sequences leave for the host, or begin anew."""
    trace = requests(*rows)
    knobs: dict[str, Any] = {"sequences": count, "decoding": "beam" if beam else "sampling"}
    plan = serve_paged(trace, "vllm_paged", blocks=blocks, host_blocks=host, watermark=0.0, **knobs)
    assert violations(plan, trace, blocks * 4) == []
    assert plan.memory is not None and plan.memory.held_at_end == 0
    for served in plan.served:
        assert served.rejected != (not math.isnan(served.answered))


def test_side_by_side_answers_cost_a_token_each_and_beams_share_more() -> None:
    """A prompt of 4 in 14 ms, then three steps of three tokens, 13 ms each."""
    trace = requests((0, 4, 4))
    assert answered(serve_paged(trace, "vllm_paged", sequences=3)) == [14 + 3 * 13]
    long = requests((0, 40, 60))
    saved = [
        figures(serve_paged(long, "vllm_paged", sequences=4, decoding=how), long)["kv_saved_fraction"]
        for how in ("sampling", "beam")
    ]
    assert 0.2 < saved[0] < saved[1] < 0.75
    assert "kv_saved_fraction" not in figures(serve_paged(long, "vllm_paged"), long)


def test_a_measured_run_has_one_answer_to_a_prompt(tmp_path: Any) -> None:
    file = tmp_path / "requests.csv"
    file.write_text("arrival,prompt,output\n0,4,4\n")
    spec = {"family": "serving", "policy": "vllm_paged", "knobs": {"sequences": 2}, "mode": "measured"}
    with pytest.raises(BadInput, match="several answers to a prompt"):
        run(load_spec({**spec, "workload": {"source": str(file)}, "hardware": "local"}))
    assert registry.create("serving", "vllm_paged", {}).branches is None  # type: ignore[attr-defined]
