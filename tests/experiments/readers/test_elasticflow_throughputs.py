"""ElasticFlow's throughput folder: what is read, and every complaint with file, line and column."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.core.errors import BadInput
from experiments.readers.archive import Member
from experiments.readers.job_profiles import open_profiles
from experiments.readers.job_profiles.elasticflow_throughputs import PROFILES

GOOD = "global_batch_size,1,2,4\n64,1.0,1.5,nan\n128,0.5,0.9,1.6\n"


def folder(tmp_path: Path, **files: str) -> Path:
    place = tmp_path / "tables"
    place.mkdir()
    for name, text in files.items():
        (place / f"{name}.csv").write_text(text)
    return place


def test_a_row_for_each_batch_and_no_level_where_the_model_does_not_run(tmp_path: Path) -> None:
    tables = open_profiles(folder(tmp_path, bert=GOOD, vgg16="global_batch_size,2,1\n64,0,3.5\n"))
    assert tables.rows["bert"] == {
        64: ((1, 1.0), (2, 1.5)),
        128: ((1, 0.5), (2, 0.9), (4, 1.6)),
    }
    assert tables.rows["vgg16"] == {64: ((1, 3.5),)}
    assert tables.left_out == 2


def test_an_archive_is_read_as_its_folder(tmp_path: Path) -> None:
    place = folder(tmp_path, bert=GOOD)
    with tarfile.open(tmp_path / "tables.tar.gz", "w:gz") as archive:
        archive.add(place / "bert.csv", "tables/bert.csv")
    assert open_profiles(tmp_path / "tables.tar.gz").rows == open_profiles(place).rows


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("global_batch_size,1,2\n64,x,2\n", "line 2, column 1: 'x' is not a number"),
        ("global_batch_size,1,2\n64,-1,2\n", "line 2, column 1: '-1' is out of range"),
        ("global_batch_size,1,two\n64,1,2\n", "line 1: column 'two' is no number of GPUs"),
        ("global_batch_size,0\n64,1\n", "line 1: column '0' is no number of GPUs"),
        ("global_batch_size,1\n64.5,1\n", "line 2, column global_batch_size: '64.5' is not a whole number"),
        ("global_batch_size,1\n64,1\n64,2\n", "line 3, column global_batch_size: '64' appears twice"),
        ("global_batch_size,1,2\n64,nan,\n", "runs on no number of GPUs"),
        ("global_batch_size,1,2\n64,1\n", "line 2: 2 cells"),
        ("global_batch_size,1\n", "no rows after the header"),
        ("global_batch_size,1\n64,inf\n", "'inf' is not a number"),
    ],
)
def test_a_bad_table_is_refused_at_the_place(tmp_path: Path, text: str, fragment: str) -> None:
    with pytest.raises(BadInput) as refused:
        open_profiles(folder(tmp_path, good=GOOD, zero=text))
    assert fragment in str(refused.value)
    assert "zero.csv" in str(refused.value)


def test_a_model_with_two_files_is_refused() -> None:
    twice = [Member("a: x/bert.csv", GOOD.encode()), Member("a: y/bert.csv", GOOD.encode())]
    with pytest.raises(BadInput, match=r"model .bert. has another file, a: x/bert\.csv"):
        PROFILES.read(twice, "a")


def test_a_folder_without_tables_is_no_profile(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is no profile of models"):
        open_profiles(folder(tmp_path, other="a,b\n1,2\n"))


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(tail: bytes) -> None:
    member = Member("f: model.csv", b"global_batch_size,1,2\n" + tail)
    assert PROFILES.recognizes([member])
    try:
        tables = PROFILES.read([member], "f")
    except BadInput:
        return
    assert all(levels for levels in tables.rows["model"].values())
