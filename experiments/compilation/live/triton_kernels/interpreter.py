"""The kernels under Triton's interpreter, in a child process.

``TRITON_INTERPRET`` counts only before the import.

The child reads calls from its standard input and writes results to its standard output, each as its length in
8 bytes and what ``torch.save`` makes of it; it ends when the input does, so it never outlives the process
that asks. The interpreter says whether a kernel computes the right thing for these sizes. It says nothing
about speed, races (its programs run one after another), loads beyond a tensor's end (they read what lies
there), or blocks a GPU refuses.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from experiments.core.errors import LabError

ROOT = Path(__file__).resolve().parents[4]


class NoTriton(LabError):
    """Triton is not installed, or its interpreter ended early."""


def is_installed() -> bool:
    return importlib.util.find_spec("triton") is not None


class Interpreter:
    """A child process that carries out launches; ``interpreter("softmax", x)`` is ``launch.softmax(x)``."""

    def __init__(self) -> None:
        if not is_installed():
            raise NoTriton(
                "Triton is not installed here: CUDA builds of torch bring it; for others "
                "`pip install -r requirements-dev.txt` does"
            )
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the child lives)
        self._child = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(paths)},
        )

    def __call__(self, kernel: str, *arguments: Any, **keywords: Any) -> Tensor:
        assert self._child.stdin and self._child.stdout
        plain = [a.detach().contiguous() if isinstance(a, Tensor) else a for a in arguments]
        try:
            _send(self._child.stdin, (kernel, plain, keywords))
            answer = _receive(self._child.stdout)
        except (BrokenPipeError, EOFError) as error:
            raise NoTriton(f"Triton's interpreter ended: {self._last_words()}") from error
        if isinstance(answer, str):
            raise ValueError(f"{kernel}: {answer}")
        assert isinstance(answer, Tensor)
        return answer

    def _last_words(self) -> str:
        self._child.wait()
        self._complaints.seek(0)
        return (
            self._complaints.read().decode(errors="replace").strip().splitlines() or ["nothing was said"]
        )[-1]

    def close(self) -> None:
        """End the child and wait for it."""
        self._child.communicate()
        self._complaints.close()


@functools.cache
def interpreter() -> Interpreter:
    """Return the one child of this process."""
    return Interpreter()


def _send(stream: IO[bytes], message: Any) -> None:
    buffer = io.BytesIO()
    torch.save(message, buffer)
    stream.write(buffer.tell().to_bytes(8, "little") + buffer.getvalue())
    stream.flush()


def _receive(stream: IO[bytes]) -> Any:
    header = stream.read(8)
    if len(header) < 8:
        raise EOFError
    return torch.load(io.BytesIO(stream.read(int.from_bytes(header, "little"))), weights_only=True)


def serve() -> None:
    """The child's loop. Whatever a library prints goes to standard error: standard output carries results."""
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    from experiments.compilation.live.triton_kernels import launch

    while True:
        try:
            kernel, arguments, keywords = _receive(source)
        except EOFError:
            return
        try:
            answer: Any = launch.KERNELS[kernel](*arguments, **keywords)
        except ValueError as error:
            answer = str(error)
        _send(sink, answer)


if __name__ == "__main__":
    serve()
