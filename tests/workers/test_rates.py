"""The highest rate by real trials, each time by another worker: what one run finds by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.core.rate_search import RateGoal
from experiments.core.spec import load_spec
from experiments.run import run
from tests.webapp.cast import Cast, make_cast
from webapp.rates import services
from webapp.rates.lines import PRECISION, lines_of
from webapp.runs.services import submit_experiment
from webapp.runs.specs import Submission
from workers import sandbox
from workers.dispatcher import register
from workers.gpu import Device
from workers.supervisor import Supervisor

pytestmark = pytest.mark.django_db(transaction=True)
CPU = Device("cpu", "some processor", 2**30)
SPEC: dict[str, Any] = {
    "family": "serving",
    "policy": "vllm_v1",
    "knobs": {"slo_ttft": 0.2, "slo_tpot": 0.03},
    "workload": {"source": "generated:poisson", "options": {"rate": 16.0, "limit": 60, "model": "llama2-7b"}},
    "hardware": "a100-80g",
}


@pytest.fixture
def cast(settings: Any, tmp_path: Path) -> Cast:
    settings.MEDIA_ROOT, settings.BLOB_CACHE = tmp_path / "files", tmp_path / "cache"
    settings.VAR = tmp_path
    return make_cast()


def test_runs_that_follow_one_another_find_what_a_run_finds_by_itself(cast: Cast) -> None:
    trial = Submission(cast.project, cast.max).trial(SPEC)
    made = submit_experiment(cast.project, cast.max, name="", trials=[trial], request={})
    study = services.begin(made, cast.max, RateGoal(0.9), [])
    carried_out = 0
    for name in range(1, 20):
        worker = Supervisor(register(name, [CPU]), [CPU], sandbox.best_tier(), 2**32, threads=1)
        carried_out += worker.drain()
        services.go_on()
        study.refresh_from_db()
        if study.ended_at:
            break
    (line,) = lines_of(made, study)
    assert study.ended_at and line.reason == "" and carried_out == made.runs.count() <= 13
    assert line.search.high - line.search.low <= PRECISION * line.search.high
    alone = run(load_spec({**SPEC, "knobs": {**SPEC["knobs"], "wanted_attainment": 0.9}}))
    assert line.search.low == pytest.approx(alone.metrics["max_rate"]["value"], rel=2 * PRECISION)
