"""Files in one move, and what is no file left as it is."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from experiments.core.whole_files import write_whole


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    path.write_bytes(b"before")
    with path.open("rb") as reader:
        write_whole(path, b"after")
        assert reader.read() == b"before", "who has it open goes on reading what was there"
    assert path.read_bytes() == b"after"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("private", "mode"), [(True, 0o600), (False, 0o640)])
def test_who_may_read_it(tmp_path: Path, private: bool, mode: int) -> None:
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "found", b"", private=private)
    finally:
        os.umask(before)
    assert (tmp_path / "found").stat().st_mode & 0o777 == mode


def test_a_pipe_is_written_into_and_stays_one(tmp_path: Path) -> None:
    pipe, heard = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: heard.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, b"figures")
    reader.join(10)
    assert heard == [b"figures"] and pipe.is_fifo()
