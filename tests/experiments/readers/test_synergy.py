"""Synergy's job lists, and speeds by processors and memory: the lab's CSV and the simulator's model files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import Opened, open_file
from experiments.readers.job_profiles import open_profiles
from experiments.workloads.profiles.resource_speeds import ResourceSpeeds

HEADER = "model,cpus,memory,steps_per_second\n"
GRID = "a,3,1e9,2\na,1,1e9,1\na,1,2e9,1\na,3,2e9,4\nb,1,1e9,0.5\n"
CLASS = """
import numpy as np
from models.model_stats import ModelStats


class vgg_1(ModelStats):
    def update_stats(self):
        self.cpus = 6
        self.iter_time = 0.5
        self.mem = int(62.5 / 3)
        self.tput = np.array([{rows}])
"""


def speeds(folder: Path, rows: str, header: str = HEADER) -> ResourceSpeeds:
    file = folder / "speeds.csv"
    file.write_text(header + rows)
    found = open_profiles(file)
    assert isinstance(found, ResourceSpeeds)
    return found


def opened(folder: Path, content: str, **options: str) -> Opened:
    file = folder / "jobs.log"
    file.write_text(content)
    return open_file(file, "auto", WorkloadOptions(**options))  # type: ignore[arg-type]


class TestJobs:
    def test_durations_need_speeds(self, tmp_path: Path) -> None:
        found = opened(tmp_path, "1,b,0.5,10,2\n0,a,0.0,300,1\n")
        trace = found.reading.value
        assert found.reader.format == "synergy"
        assert (trace.job, trace.gpus.tolist(), trace.submit.tolist()) == (("0", "1"), [1, 2], [0, 0.5])
        assert np.isnan(trace.service).all()
        speeds(tmp_path, "a,3,62.5e9,3\nb,1,1e9,0.5\n")
        with_speeds = opened(tmp_path, "1,b,0.5,10,2\n0,a,0.0,300,1\n", extra=str(tmp_path / "speeds.csv"))
        assert with_speeds.reading.value.service.tolist() == [100, 20]

    def test_every_shipped_row_is_read(self, shared_data: Path) -> None:
        for name in ("static_100job_6_3_1100.0", "dynamic_srtf.log"):
            found = open_file(shared_data / "cluster/synergy" / name, "auto", WorkloadOptions())
            assert (found.reader.format, len(found.reading.value)) == ("synergy", 100)

    @pytest.mark.parametrize(
        ("row", "message"),
        [
            ("1,b,-1,10,2", "line 2, column submit: '-1' is out of range"),
            ("1,b,nan,10,2", "line 2, column submit: 'nan' is not a number"),
            ("1,b,1,10,0", "line 2, column gpus: '0' is out of range"),
            ("1,b,1,10,2.5", r"line 2, column gpus: '2\.5' is not a whole number"),
            ("0,b,1,10,2", r"line 2, column job_id: '0' appears twice \(first on line 1\)"),
            ("1,,1,10,2", "line 2, column model: '' is empty"),
            ("1,b,1,10", "line 2.*4 cells"),
        ],
    )
    def test_what_is_wrong_is_named(self, tmp_path: Path, row: str, message: str) -> None:
        with pytest.raises(BadInput, match=message):
            opened(tmp_path, f"0,a,0.0,300,1\n{row}\n")


class TestSpeeds:
    def test_a_grid_answers_by_the_largest_measurement_that_is_no_more(self, tmp_path: Path) -> None:
        found = speeds(tmp_path, GRID)
        grid = found.models["a"]
        assert (grid.cpus, grid.memory) == ((1.0, 3.0), (1e9, 2e9))
        assert [grid.at(*place) for place in ((1, 1e9), (2.9, 9e9), (3, 1.9e9), (24, 2e9))] == [1, 1, 2, 4]
        assert grid.at(0.5, 1e9) == 0.5

    def test_more_is_never_slower(self, tmp_path: Path) -> None:
        grid = speeds(tmp_path, "a,1,1e9,2\na,2,1e9,1.5\n").models["a"]
        assert grid.capped and grid.at(2, 1e9) == 2

    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            ("a,1,1e9,0\n", "line 2, column steps_per_second: '0' is out of range"),
            ("a,0,1e9,1\n", "line 2, column cpus: '0' is out of range"),
            ("a,1,1e9,1\na,1,1e9,2\n", "line 3, column memory: '1e9' appears twice with 1 cpus"),
            ("a,1,1e9,1\na,2,2e9,2\n", "line 2, column model: 'a' has no speed on 1 cpus and 2e.09 bytes"),
            (",1,1e9,1\n", "line 2, column model: '' is empty"),
        ],
    )
    def test_a_bad_side_file_is_refused_at_the_place(self, tmp_path: Path, rows: str, message: str) -> None:
        with pytest.raises(BadInput, match=message):
            speeds(tmp_path, rows)

    def test_model_files_are_read_and_never_run(self, tmp_path: Path) -> None:
        folder = tmp_path / "models"
        folder.mkdir()
        row = "[0.1, 1, 1, 1, 2]"
        (folder / "vgg_1.py").write_text(CLASS.format(rows=", ".join([row] * 9)) + "raise SystemExit\n")
        (folder / "vgg_2.py").write_text(CLASS.format(rows="[1]"))
        (folder / "__init__.py").write_text("from models.vgg_1 import vgg_1\n")
        found = open_profiles(folder)
        assert list(found.models) == ["vgg"]
        assert found.models["vgg"].at(3, 62.5e9) == 2
        assert found.models["vgg"].at(24, 250e9) == 4

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (CLASS.format(rows="[1, 1], [1]"), "tput is no table of numbers"),
            (CLASS.format(rows="[1, 1], [1, 1]"), "tput has another shape"),
            (CLASS.format(rows="[1]").replace("0.5", "0"), "iter_time is 0"),
            (CLASS.format(rows="[1]") + "def\n", "is not Python"),
        ],
    )
    def test_a_bad_model_file_is_named(self, tmp_path: Path, text: str, message: str) -> None:
        file = tmp_path / "vgg_1.py"
        file.write_text(text)
        with pytest.raises(BadInput, match=message):
            open_profiles(file)
