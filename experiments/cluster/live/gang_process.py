"""A job's processes on its slots, one for each device of its gang: started, told, listened to, ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from experiments.core.forked import ForkedProcess, server_of

RANK = "experiments.cluster.live.rank"


class GangProcess:
    """The processes of one execution. Rank 0 hears commands and says what happens."""

    def __init__(self, ranks: Sequence[ForkedProcess], log: Path) -> None:
        self.ranks, self.log = list(ranks), log
        self._rest = b""
        os.set_blocking(self.output.fileno(), False)

    @property
    def output(self) -> IO[bytes]:
        """What rank 0 says, for a selector."""
        output = self.ranks[0].stdout
        assert output is not None
        return output

    def tell(self, command: str) -> None:
        """Give rank 0 a command; one that has ended hears nothing."""
        _write(self.ranks[0], command)

    def give_share(self, share: float) -> None:
        """Have all processes keep to ``share`` of their slots from now on."""
        for process in self.ranks:
            _write(process, f"share {share}")

    def freeze(self) -> None:
        """Let no process of the gang go on, wherever it is."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for process in self.ranks:
            process.send_signal(number)

    def hear(self) -> Iterator[dict[str, Any]]:
        """What was said since; ``{"said": "gone"}`` at the end of all."""
        read = self.output.read()
        if read is None:
            return
        *lines, self._rest = (self._rest + read).split(b"\n")
        for line in lines:
            yield json.loads(line)
        if not read:
            yield {"said": "gone"}

    def has_lost_one(self) -> bool:
        """Whether a process has died."""
        return any(process.poll() not in (None, 0) for process in self.ranks)

    def last_words(self) -> str:
        """The last line that a process wrote to its log."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "no output"

    def end(self) -> None:
        """No process of the gang is left."""
        for process in self.ranks:
            process.kill()
        for process in self.ranks:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()


def _write(process: ForkedProcess, command: str) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(command.encode() + b"\n")
        process.stdin.flush()


def start(
    folder: Path,
    number: int,
    training: dict[str, Any],
    cores: Sequence[int | None],
    gpus: Sequence[str | None],
) -> GangProcess:
    """Start the ``number``-th execution of a job whose state lies in ``folder``.

    ``training`` says what it trains: model, seed, steps, seconds between checkpoints; and the
    ``share`` of its slots that it keeps to, if any.
    """
    folder.mkdir(parents=True, exist_ok=True)
    meeting, log = folder / f"meeting-{number}", folder / f"log-{number}.txt"
    shared = {**training, "folder": str(folder), "meeting": str(meeting), "ranks": len(cores)}
    server, started = server_of(RANK), list[ForkedProcess]()
    with log.open("wb") as errors:
        for rank, (core, gpu) in enumerate(zip(cores, gpus, strict=True)):
            asked = json.dumps({**shared, "rank": rank, "core": core, "gpu": gpu})
            started.append(server.start([asked], _environment(gpu), errors, hears=True, speaks=rank == 0))
    return GangProcess(started, log)


def load_libraries() -> None:
    """Have what starts share what they load already, so that none of them waits for it."""
    server_of(RANK)


def _environment(gpu: str | None) -> dict[str, str]:
    """Gloo would look the host's name up, which a sandbox without network does not know."""
    return {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": gpu or ""}
