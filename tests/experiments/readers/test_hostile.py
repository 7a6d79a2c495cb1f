"""Every bad file is refused with a reason that names the place; every odd file is read; nothing grows without
bound.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import open_file
from tests.hostile_corpus import BAD, ODD, BadFile, OddFile
from tests.hostile_files import gzip_bomb

MEGABYTE = 1 << 20


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_a_bad_file_is_refused_at_the_place(bad: BadFile, tmp_path: Path) -> None:
    file = tmp_path / bad.name
    file.write_bytes(bad.make())
    with pytest.raises(BadInput) as refused:
        open_file(file, bad.format, WorkloadOptions())
    message = str(refused.value)
    assert bad.name in message
    assert bad.fragment in message
    assert len(message) < 1200
    assert not any(character == "\0" or "\ud800" <= character <= "\udfff" for character in message)


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd.name)
def test_an_odd_file_is_read(odd: OddFile, tmp_path: Path) -> None:
    file = tmp_path / odd.name
    file.write_bytes(odd.make())
    opened = open_file(file, "auto", WorkloadOptions())
    assert opened.reader.format == odd.format
    if odd.rows is not None:
        assert len(opened.reading.value) == odd.rows


def test_the_corpus_is_as_large_as_promised() -> None:
    assert len({bad.name + bad.format for bad in BAD}) == len(BAD) >= 30
    assert len({odd.name for odd in ODD}) == len(ODD) >= 10


def test_a_gzip_bomb_never_takes_more_memory_than_its_cap(tmp_path: Path) -> None:
    """120 MB of zeros: stopped after 16 MB, in a child of its own."""
    (tmp_path / "bomb.csv.gz").write_bytes(gzip_bomb())
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from experiments.core.errors import BadInput\n"
        "from experiments.core.options import WorkloadOptions\n"
        "from experiments.readers.base import open_file, readers\n"
        "readers(); before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try: open_file(Path(sys.argv[1]), 'auto', WorkloadOptions())\n"
        "except BadInput: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "bomb.csv.gz")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    scale = 1 if sys.platform == "darwin" else 1024
    assert int(done.stdout) * scale < 80 * MEGABYTE
