"""One lab a checkout; what a killed one left behind is told apart from what merely has its number."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from labtools import control, processes, record
from labtools.layout import Layout
from labtools.problems import Problem


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout(tmp_path, tmp_path / "var")
    made.make()
    return made


@pytest.fixture
def bystander():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def test_a_second_lab_is_refused_with_the_address_of_the_first(layout: Layout) -> None:
    with record.claim(layout):
        record.write(layout, 8123, {}, {})
        with pytest.raises(Problem) as caught, record.claim(layout):
            pass
    expected = f"a lab already runs in this checkout at http://127.0.0.1:8123 (process {os.getpid()})"
    assert caught.value.args[0] == expected
    assert caught.value.remedy == "use it, or end it first: ./lab stop"


def test_after_the_end_nothing_is_held_or_recorded(layout: Layout) -> None:
    with record.claim(layout):
        assert record.is_held(layout)
    assert not record.is_held(layout)
    assert record.read_record(layout) is None


def test_a_child_that_outlived_a_killed_lab_is_ended(
    layout: Layout, bystander: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    record.write(layout, 8000, {"web": bystander.pid}, {})
    with record.claim(layout):
        assert bystander.wait(5) != 0
    assert "ended without clearing up; cleared up: web" in capsys.readouterr().out


def test_a_stale_record_does_not_harm_the_program_that_has_the_number_now(
    layout: Layout, bystander: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    record.write(layout, 8000, {"web": bystander.pid}, {})
    stale = json.loads(layout.record.read_text())
    stale["children"][0]["started"] = "1"
    layout.record.write_text(json.dumps(stale))
    with record.claim(layout):
        assert bystander.poll() is None
    assert "cleared up: nothing was left running" in capsys.readouterr().out


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}', '{"children": [{"name": "web"}]}'])
def test_a_damaged_record_counts_as_none(layout: Layout, content: str) -> None:
    layout.record.write_text(content)
    assert record.read_record(layout) is None
    with record.claim(layout):
        assert record.is_held(layout)


def test_status_says_what_runs_and_exits_with_three_where_nothing_does(
    layout: Layout, bystander: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    assert control.status(layout) == 3
    with record.claim(layout):
        record.write(layout, 1, {"web": bystander.pid}, {})
        assert control.status(layout) == 0
    assert f"web        process {bystander.pid:<8} runs" in capsys.readouterr().out


def test_stopping_where_nothing_runs_is_no_error(layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    assert control.stop(layout) == 0
    assert capsys.readouterr().out == "No lab runs in this checkout.\n"


def test_a_process_is_its_number_and_its_start(bystander: subprocess.Popen[bytes]) -> None:
    process = processes.find(bystander.pid)
    assert process is not None
    assert process.parent == os.getpid()
    assert processes.is_running(process.pid, process.started)
    assert not processes.is_running(process.pid, "another start")


def test_a_process_that_ended_unasked_after_is_not_running(bystander: subprocess.Popen[bytes]) -> None:
    bystander.kill()
    os.waitid(os.P_PID, bystander.pid, os.WEXITED | os.WNOWAIT)
    assert processes.find(bystander.pid) is None


def test_the_process_table_by_ps_says_the_same_as_by_proc(bystander: subprocess.Popen[bytes]) -> None:
    # On Linux both ways exist; elsewhere there is only ps.
    by_ps = {process.pid: process.parent for process in processes._from_ps()}
    assert by_ps[bystander.pid] == os.getpid()
