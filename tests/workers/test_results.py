"""What a trial leaves in the place of an answer is read as its own file or not at all."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from experiments.core.errors import BadInput
from workers import scratch
from workers.results import open_result, read_text
from workers.usage import MOST_DEPTH, excess_of_files, unlinked_bytes


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "secret-key").write_text('{"secret": 1}')
    found = tmp_path / "work"
    found.mkdir()
    return found


def refusal(path: Path, most: int = 100) -> str:
    with pytest.raises(BadInput) as told:
        read_text(path, most)
    return str(told.value)


def test_nothing_but_the_trials_own_regular_file_is_read(work: Path) -> None:
    told = work / "outcome.json"
    assert "No such file" in refusal(told)
    for plant in (
        lambda: told.symlink_to(work.parent / "secret-key"),
        lambda: os.link(work.parent / "secret-key", told),
        lambda: os.mkfifo(told),
        lambda: told.mkdir(),
        lambda: socket.socket(socket.AF_UNIX).bind(str(told)),
        lambda: told.symlink_to("/dev/zero"),
    ):
        plant()
        assert refusal(told)
        told.rmdir() if stat.S_ISDIR(told.lstat().st_mode) else told.unlink()
    told.write_bytes(b"\xff")
    assert "utf-8" in refusal(told)
    told.write_text("x" * 101)
    assert "101 bytes" in refusal(told)
    told.write_text("{}")
    assert read_text(told, 100) == "{}"
    with open_result(told, 2) as file:
        assert file.read() == b"{}"


def test_files_are_counted_with_those_that_have_lost_their_name(work: Path) -> None:
    before = unlinked_bytes([os.getpid()])
    (work / "kept").write_bytes(bytes(2**20))
    # The same file under another name, and what a link leads to, are not more bytes of this folder.
    (work / "elsewhere").symlink_to("/usr")
    with (work / "gone").open("wb") as gone:
        gone.write(bytes(2**21))
        gone.flush()
        (work / "gone").unlink()
        memory = os.memfd_create("trial")
        os.write(memory, bytes(2**20))
        held = unlinked_bytes([os.getpid()]) - before
        os.close(memory)
    assert held == pytest.approx(3 * 2**20, rel=0.02)
    assert excess_of_files(work, 0, 2**21) == ""
    assert excess_of_files(work, held, 2**21) == "wrote more than 0.00195 GiB of files"
    (work / "empty").mkdir()
    assert excess_of_files(work / "empty", held, 2**21) == "wrote more than 0.00195 GiB of files"
    deep = work.joinpath(*["d"] * (MOST_DEPTH + 2))
    deep.mkdir(parents=True)
    assert excess_of_files(work, 0, 2**30) == f"nested folders more than {MOST_DEPTH} deep"


def test_a_folder_goes_however_deep_and_closed_a_trial_left_it() -> None:
    with scratch.folder() as work:
        outer, here = work.parent, os.open(work, os.O_RDONLY)
        for _ in range(3000):
            os.mkdir("d", 0o700, dir_fd=here)
            below = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        os.close(here)
        (work / "closed").mkdir(mode=0o000)
    assert not outer.exists()
