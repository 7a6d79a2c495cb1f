"""What a trial left, opened so that it is the trial's own file and nothing else.

A trial may put anything in the place of an answer: a link to a secret or to another's upload, a pipe that
never ends. The worker reads with rights that the trial does not have.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from experiments.core.errors import BadInput


def open_result(path: Path, most: int) -> BinaryIO:
    """The regular file at ``path`` of at most ``most`` bytes.

    Raises ``BadInput`` where there is none, or something else.
    """
    try:
        # Neither through a link nor waiting for somebody at the other end of a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        raise BadInput(error.strerror or str(error), path.name, "what the trial was asked for") from None
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1:
        os.close(descriptor)
        raise BadInput("a link, a pipe or a device", path.name, "a file of the trial's own")
    if about.st_size > most:
        os.close(descriptor)
        raise BadInput(f"{about.st_size} bytes", path.name, f"at most {most}")
    return os.fdopen(descriptor, "rb")


def read_text(path: Path, most: int) -> str:
    """The text of such a file, of ``most`` bytes even where it grows meanwhile. Raises ``BadInput``."""
    with open_result(path, most) as file:
        try:
            return file.read(most).decode("utf-8")
        except UnicodeDecodeError as error:
            raise BadInput(str(error), path.name, "what the trial was asked for") from None
