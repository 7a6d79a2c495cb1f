"""The page of hosts and the evidence on it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from tests.webapp.cast import Cast, experiment_with, ready, run, run_in, signed_in
from webapp.hosts import evidence, services
from webapp.hosts.models import Host, Validation
from webapp.hosts.tables import cell_rows


def test_a_host_that_is_silent_is_away_and_its_load_is_counted(cast: Cast) -> None:
    up = Host.objects.create(name="near", slots=2)
    Host.objects.create(name="far", heartbeat_at=timezone.now() - timedelta(minutes=5))
    model = ready(cast.project)
    run_in(experiment_with(cast.project, model, queued=3), model, "running", host=up)
    page = signed_in(cast.vera).get(cast.url("hosts/")).content.decode()
    assert "1 of 2 slots" in page
    assert page.count("state-up") == 1
    assert page.count("state-away") == 1
    assert "3 runs wait: 3 for any host" in page


def test_a_host_that_claims_nothing_says_why_until_its_next_heartbeat_says_otherwise(cast: Cast) -> None:
    host = services.register("gpu-1", {"slots": 2, "trouble": "the disk of trials is full (3 MiB free)"})
    client, why = signed_in(cast.vera), "claims nothing: the disk of trials is full (3 MiB free)"
    assert why in client.get(cast.url("hosts/")).content.decode()
    services.heartbeat(host)
    assert why not in client.get(cast.url("hosts/")).content.decode()


def test_evidence_is_imported_once_and_the_newest_is_shown(cast: Cast, tmp_path: Path) -> None:
    """The file's own summary is shown; a cell that failed keeps its reason."""
    file = tmp_path / "cpu.json"
    figures = {"peak_memory": {"predicted": 110.0, "measured": 100.0, "error": 0.1}}
    about: dict[str, Any] = {"family": "memory", "reason": None, "figures": {}}
    cells = [
        {**about, "model": "zoo:gpt2", "policy": "baseline", "status": "ok", "figures": figures},
        {**about, "model": "zoo:vgg16", "policy": "vdnn", "status": "failed", "reason": "no memory"},
    ]
    errors = {"step_time": {"median": 0.125, "largest": 0.3, "cells": 1}}
    content = {"device": "cpu", "started": "2026-01-02T03:04:05Z", "cells": cells, "errors": errors}
    file.write_text(json.dumps(content))
    assert evidence.simulator_errors().of("memory", "cpu-generic") is None
    call_command("import_evidence", str(file))
    call_command("import_evidence", str(file))
    assert Validation.objects.count() == 1
    client = signed_in(cast.vera)
    names = "&".join(
        f"validation-column={name}" for name in ("model", "metric", "unit", "predicted", "error")
    )
    rows = (
        client.get(cast.url(f"hosts/validation?export=csv&table=validation-&{names}"))
        .content.decode()
        .splitlines()
    )
    assert rows[1] == "gpt2,peak_memory,bytes,110.0,0.1"
    (found,) = evidence.newest()
    assert [(line.model, line.metric, line.error) for line in found.lines] == [
        ("gpt2", "peak_memory", 0.1),
        ("vgg16", "", None),
    ]
    error = evidence.simulator_errors().of("memory", "cpu-generic")
    assert error is not None
    assert error.words == "median error on cpu: peak memory 10 %"
    assert evidence.simulator_errors().of("cluster", "cpu-generic") is None


def validated(device: str, family: str, day: int, *errors: float) -> None:
    figures = [{"step_time": {"predicted": 1, "measured": 1, "error": error}} for error in errors]
    about = {"family": family, "model": "zoo:gpt2", "policy": "p", "status": "ok", "reason": ""}
    cells = [{**about, "figures": figure} for figure in figures]
    moment = datetime(2026, 1, day, tzinfo=UTC)
    Validation.objects.create(
        device=device, measured_at=moment, evidence={"cells": cells}, sha256=f"{device}{day}"[:64]
    )


def test_a_simulated_figure_shows_the_error_on_its_own_device_and_on_no_other(cast: Cast) -> None:
    """Today's processor says nothing of a T4; of mixed groups it is the larger error, if all have one."""
    validated("NVIDIA H200", "memory", 3, 0.25, -0.5, 0.125)
    validated("cpu (2 cores)", "memory", 4, 0.03)
    validated("cpu (2 cores)", "memory", 2, 0.99)
    errors = evidence.simulator_errors()
    shown = {
        "h200-141g": 0.25,
        "h200-141g with memory_bytes=1e9": 0.25,
        "cpu-generic": 0.03,
        "t4-16g": None,
        "4x8 h200-141g": 0.25,
        "4x8 h200-141g + 2x cpu-generic": 0.25,
        "4x8 h200-141g + 2x8 t4-16g": None,
        "2x dgx-h200": 0.25,
        "": None,
    }
    found = {label: errors.of("memory", label) for label in shown}
    assert {label: error and error.fraction for label, error in found.items()} == shown


def test_the_badge_says_where_a_device_was_not_validated(cast: Cast) -> None:
    """Two CPU cores were; the runs stand on an A100, and on nothing that was measured is an error shown."""
    validated("cpu (2 cores)", "memory", 4, 0.0321)
    made = experiment_with(cast.project, ready(cast.project), succeeded=1)
    first = made.runs.get()
    extra: tuple[dict[str, Any], ...] = (
        {"mode": "measured"},
        {"family": "cluster", "policy": "fifo"},
        {"hardware": "cpu-generic"},
    )
    for more in extra:
        run(made, metrics={"step_time": 1.0, "peak_memory": 2.0}, **more)
    run(made, "vdnn-all", {"step_time": 3.0, "peak_memory": 1.0})
    client = signed_in(cast.vera)
    page = client.get(cast.url(f"compare/{made.pk}/")).content.decode()
    table = page.split("</thead>")[1].split("</table>")[0]
    assert table.count("err. 3.21 %") == 1
    assert table.count('<span class="error">not validated on this device</span>') == 3
    scatter = page.split('id="figure-plot-data"')[1]
    assert "simulated (median error on cpu (2 cores): step time 3.21 %)" in scatter
    assert "simulated (not validated on this device)" in scatter
    run_page = client.get(cast.url(f"runs/{first.pk}/")).content.decode()
    assert "not validated on this device" in run_page and "err. 3.21 %" not in run_page


def test_a_comparison_of_one_device_has_its_badge_once_however_many_there_are(cast: Cast) -> None:
    """One, eight and thirty-two of an H200 are one kind of device: the heading has its error."""
    validated("NVIDIA H200", "memory", 3, 0.25)
    made = experiment_with(cast.project, ready(cast.project))
    for hardware in ("h200-141g", "1x8 h200-141g", "4x8 h200-141g"):
        run(made, metrics={"step_time": 1.0, "peak_memory": 2.0}, hardware=hardware)
    page = signed_in(cast.vera).get(cast.url(f"compare/{made.pk}/")).content.decode()
    assert "err. 25 %" in page.split("</h1>")[1].split("</thead>")[0]
    assert "err. 25 %" not in page.split("</thead>")[1].split("</table>")[0]


def test_a_file_that_is_no_evidence_is_refused_by_name(db: None, tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text("[]")
    with pytest.raises(CommandError, match=r"other\.json"):
        call_command("import_evidence", str(file))


@pytest.mark.parametrize(
    ("family", "metric", "other", "goal"),
    [("cluster", "avg_jct", "makespan", 10), ("serving", "latency_mean", "ttft_mean", 15)],
)
def test_a_cell_of_jobs_or_of_requests_has_its_time_in_the_table(
    cast: Cast, family: str, metric: str, other: str, goal: int
) -> None:
    """Completion in the mean is the time, 20 % off, whatever else came before; each family has its goal."""
    figures = {
        other: {"predicted": 3.0, "measured": 3.0, "error": 0.0},
        metric: {"predicted": 8.0, "measured": 10.0, "error": -0.2},
    }
    about = {"family": family, "model": "m", "policy": "p", "status": "ok", "reason": None}
    facts = {
        "turns": 5,
        "measured_range": {metric: [8.0, 12.0], other: [3.0, 30.0]},
        "error_interval": {metric: [-0.31, 0.04], other: [0.0, 0.0]},
        "blind_error": {metric: -0.37, other: 0.0},
    }
    cells = [{**about, "figures": figures, "facts": facts}]
    Validation.objects.create(device="cpu", measured_at=timezone.now(), evidence={"cells": cells}, sha256="d")
    page = signed_in(cast.vera).get(cast.url("hosts/validation")).content.decode()
    table = page.split('aria-label="By model and policy"')[1].split("</section>")[0]
    assert table.count(f'class="change worse" title="beyond {goal} %, -0.2"') == 1
    assert "8 s" in table and "10 s" in table and "3 s" not in table
    assert "5 runs, 50 % apart; -31 to +4 % (90 %); -37 % without the meter" in table


def test_a_grid_of_sixty_cells_is_one_table_with_memory_and_time_side_by_side(cast: Cast) -> None:
    """Memory 4 % off is within the goal, time 20 % off beyond it; a cell that failed keeps its row and its
    reason.
    """
    figures = {
        "peak_memory": {"predicted": 104.0 * 2**20, "measured": 100.0 * 2**20, "error": 0.04},
        "step_time": {"predicted": 0.8, "measured": 1.0, "error": -0.2},
    }
    about: dict[str, Any] = {"family": "memory", "reason": None, "status": "ok", "figures": figures}
    cells = [{**about, "model": f"zoo:m{i // 10}", "policy": f"p{i % 10}"} for i in range(59)]
    cells.append(
        {**about, "model": "zoo:m5", "policy": "p9", "status": "failed", "reason": "oops", "figures": {}}
    )
    Validation.objects.create(device="cpu", measured_at=timezone.now(), evidence={"cells": cells}, sha256="c")
    rows = cell_rows(evidence.newest())
    assert len(rows) == 60
    assert (rows[0].memory.error, rows[0].time.error) == (0.04, -0.2)  # type: ignore[union-attr]
    assert (rows[-1].memory, rows[-1].time, rows[-1].reason) == (None, None, "oops")
    page = signed_in(cast.vera).get(cast.url("hosts/validation")).content.decode()
    table = page.split('aria-label="By model and policy"')[1].split("</section>")[0]
    assert table.count('class="change better" title="within 5 %, 0.04"') == 59
    assert table.count('class="change worse" title="beyond 15 %, -0.2"') == 59
    file = signed_in(cast.vera).get(
        cast.url("hosts/validation?export=csv&table=cells-&cells-column=time_error")
    )
    assert file.content.decode().splitlines()[1] == "-0.2"
    assert "oops" in table
