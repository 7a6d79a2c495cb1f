"""Pages of job and request traces: demand against a cluster, and what follows for the model that serves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from experiments.summaries.arrivals import arrivals_of
from experiments.summaries.demand import demand_of
from tests.experiments.summaries.test_demand import jobs, requests
from tests.webapp.cast import Cast, ready, signed_in
from webapp.artifacts.models import Artifact
from webapp.artifacts.workloads.jobs import demand_of as page_demand
from webapp.artifacts.workloads.requests import load_of

pytestmark = pytest.mark.django_db
PLAIN: dict[str, Any] = {"cards": [], "plots": [], "estimates": []}
HOUR = 3600.0


def job_trace(cast: Cast) -> Artifact:
    """Over 10 h: 4 GPUs for 5 h from the start, 8 for 5 h from the first hour, one for an hour at the end."""
    rows = jobs((0, 4, 5 * HOUR), (HOUR, 8, 5 * HOUR), (10 * HOUR, 1, HOUR))
    return ready(cast.project, "jobs", "jobs.csv", zoo="", summary={**PLAIN, "demand": demand_of(rows)})


def test_demand_stands_next_to_the_cluster_of_the_address(cast: Cast) -> None:
    """61 GPU-hours are 76 % of what 8 GPUs give in 10 h; 12 are wanted for 4 h."""
    found, reader = job_trace(cast), signed_in(cast.max)
    page = reader.get(cast.url(f"artifacts/{found.pk}/?gpus=8")).content.decode()
    assert "3 jobs over 10 h ask for 61 GPU-hours:" in page
    assert "76 % of what 8 GPUs can give in that time; demand exceeds them for 4 h." in page
    assert "At most 12 GPUs are wanted at once, 1 h after the start." in page
    assert "Jobs of 8 GPUs are 33 % of all and take 66 % of the GPU time." in page
    assert "family=cluster&amp;nodes=1&amp;devices_per_node=8" in page
    small = reader.get(cast.url(f"artifacts/{found.pk}/?gpus=4")).content.decode()
    assert "1.52 times what 4 GPUs can give" in small
    assert "✗ 1 job wants more than 4 GPUs" in small
    large = reader.get(cast.url(f"artifacts/{found.pk}/?gpus=12")).content.decode()
    assert "demand never exceeds them" in large
    assert "nodes=3&amp;devices_per_node=4" in large
    assert '<button class="primary" name="all" value="cluster">Try all schedulers on 12 GPUs' in large


@pytest.mark.parametrize("asked", ["", "0", "-8", "x", "9" * 30, "1e3"])
def test_without_a_size_the_cluster_holds_every_job_at_three_quarters_of_its_load(
    cast: Cast, asked: str
) -> None:
    found = page_demand(job_trace(cast), {"gpus": asked})
    assert found is not None and (found.gpus, found.too_large) == (16, 0)


def test_a_form_that_was_opened_for_a_cluster_has_it(cast: Cast) -> None:
    found = job_trace(cast)
    address = f"experiments/new?artifact={found.pk}&family=cluster&nodes=3&devices_per_node=4"
    page = signed_in(cast.max).get(cast.url(address)).content.decode()
    assert 'name="nodes" value="3"' in page
    assert 'name="devices_per_node" value="4"' in page


def request_trace(cast: Cast) -> Artifact:
    """Two requests a second, each of 40 prompt and 10 output tokens, all after the same 32 tokens."""
    rows = requests([place / 2 for place in range(41)], [[1, 2]] * 41)
    return ready(
        cast.project, "requests", "r.jsonl", zoo="", summary={**PLAIN, "arrivals": arrivals_of(rows)}
    )


def test_the_model_of_the_address_says_what_is_kept_and_computed(cast: Cast) -> None:
    """Llama-2 7B keeps 2 x 32 x 32 x 128 x 2 bytes of a token; an upload of 2 x 4 x 2 x 8 x 2."""
    found, reader = request_trace(cast), signed_in(cast.max)
    page = reader.get(cast.url(f"artifacts/{found.pk}/")).content.decode()
    assert "82 prompt and 20.5 output tokens a second; 78 % of prompt tokens repeat a prefix." in page
    assert "512 KiB" in page
    assert "option:model=llama2-7b" in page
    small = {"parameters": 1e6, "layers": 4, "hidden": 16, "heads": 2, "kv_heads": 2, "head_dim": 8}
    told = {"name": "x", **small, "context": 45, "source": "its config.json"}
    mine = ready(cast.project, "model", "mine.json", zoo="", summary={**PLAIN, "served": told})
    load = load_of(found, {"model": f"artifact:{mine.pk}"})
    assert load is not None
    assert (load.kv_bytes, load.model.name) == (256, "mine.json")
    assert load.flops == pytest.approx(2e6 * 50 * 41 / 20)
    other = reader.get(cast.url(f"artifacts/{found.pk}/?model=artifact:{mine.pk}")).content.decode()
    assert "✗ The longest request has 50 tokens, mine.json takes 45." in other
    assert f"option:model=artifact%3A{mine.pk}" in other


def test_devices_hold_tokens_in_nine_tenths_of_their_memory_beside_the_weights(cast: Cast) -> None:
    load = load_of(request_trace(cast), {"model": "no such model"})
    assert load is not None and load.chosen == "llama2-7b"
    rows = {row.name: row for row in load.devices}
    usable = 0.9 * 40 * 2**30
    assert rows["a100-40g"].tokens == int((usable - 2 * 6.738e9) / (512 * 1024))
    assert rows["k40-12g"].devices == int(np.ceil(2 * 6.738e9 / (0.9 * 12 * 2**30)))


def test_traces_read_before_have_their_old_page(cast: Cast) -> None:
    for kind in ("jobs", "requests"):
        old = ready(cast.project, kind, f"{kind}.csv", zoo="", summary=PLAIN)
        assert signed_in(cast.max).get(cast.url(f"artifacts/{old.pk}/")).status_code == 200
