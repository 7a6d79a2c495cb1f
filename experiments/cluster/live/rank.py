"""One process of a gang: trains a job from its last checkpoint on, and stops between two steps when told to.

It is forked from a process that has loaded this module. Its argument is a JSON object
(``gang_process.start``). Commands come as lines on the standard input of rank 0: ``stop`` (save and exit),
``pause`` and ``go``, ``batch`` with samples at once and accumulations (``adaptive_batch``); ``share`` and a
number comes to all ranks (``pace``). It answers in JSON lines:
``begun`` at its first step, ``step`` now and then, ``paused``, and ``done`` or ``stopped`` with the step that
was saved; where the batch changes, steps are those of the initial one. Every process ends when its input
ends, that is with whoever started it.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # the first optimizer of each rank would load it
import torch.distributed as dist

from experiments.cluster.live import checkpoint
from experiments.cluster.live.adaptive_batch import AdaptiveBatch
from experiments.cluster.live.fixed_batch import FixedBatch
from experiments.cluster.live.models import training_task
from experiments.cluster.live.pace import Pace
from experiments.cluster.live.replica import Replica
from experiments.core.fork_server import serve

#: Seconds between two reports of progress.
REPORT_EVERY = 0.05
GO_ON, STOP, END = 0, 1, 2


def main(arguments: str) -> None:
    asked = json.loads(arguments)
    if asked["core"] is not None:
        os.sched_setaffinity(0, {asked["core"]})
    commands: queue.SimpleQueue[str] = queue.SimpleQueue()
    pace = Pace(asked.get("share", 1.0))
    threading.Thread(target=listen, args=(commands, pace), daemon=True).start()
    Training(asked, commands, pace).run()


def listen(commands: queue.SimpleQueue[str], pace: Pace) -> None:
    """Pass on what comes; end the process when nobody can say anything any more."""
    for line in sys.stdin:
        command, _, number = line.strip().partition(" ")
        if command == "share":
            pace.share = float(number)
        else:
            commands.put(line)
    os._exit(1)


def say(what: str, **facts: Any) -> None:
    sys.stdout.write(json.dumps({"said": what, **facts}) + "\n")
    sys.stdout.flush()


class Training:
    """A job's model, optimizer and place in its work."""

    def __init__(self, asked: dict[str, Any], commands: queue.SimpleQueue[str], pace: Pace) -> None:
        self.asked, self.commands, self.pace = asked, commands, pace
        self.rank, self.ranks, self.work = asked["rank"], asked["ranks"], asked["steps"]
        self.state = Path(asked["folder"]) / "state.pt"
        torch.set_num_threads(1)
        torch.set_flush_denormal(True)
        self.device = "cuda" if asked["gpu"] is not None else "cpu"
        task = training_task(asked["model"], asked["seed"])
        self.replica = Replica(task, self.device, self.rank, self.ranks)
        if "division" in asked:
            self.batch: Any = AdaptiveBatch(self.replica, self.work, tuple(asked["division"]))
        else:
            self.batch = FixedBatch(self.replica)
        self.last_save = time.monotonic()
        if self.ranks > 1:
            self._meet()
        checkpoint.load(self.state, self.replica, self.batch)

    def _meet(self) -> None:
        meeting = f"file://{self.asked['meeting']}"
        kind = "nccl" if self.device == "cuda" else "gloo"
        dist.init_process_group(kind, meeting, rank=self.rank, world_size=self.ranks)

    def run(self) -> None:
        """Train until the work is done or until told to stop; the state is saved either way."""
        began, used, first = time.monotonic(), time.process_time(), self.batch.done
        self._say("begun", step=self.batch.done)
        reported = began
        while (word := self._told()) == GO_ON:
            self.batch.train()
            self.pace.wait(lambda: not self.commands.empty())
            now = time.monotonic()
            if now - reported >= REPORT_EVERY:
                reported = now
                self._say("step", step=self.batch.done, **self.batch.facts())
            every = self.asked["checkpoint_every"]
            if every is not None and now - self.last_save >= every:
                self._save()
                self._say("saved", step=self.batch.done)
        computing = time.process_time() - used
        seconds = time.monotonic() - began
        self._save()
        done = self.batch.done
        told = {"step": done, "steps": done - first, "seconds": seconds, "computing": computing}
        word_told = "stopped" if word == STOP else "done"
        self._say(word_told, loss=self.batch.loss, **told, **self.batch.facts())

    def _told(self) -> int:
        """What the gang does before its next step; rank 0 hears it, the others hear it of rank 0."""
        word = GO_ON
        if self.rank == 0:
            word = self._hear() if self.batch.done < self.work else END
        if self.ranks == 1:
            return word
        told = torch.tensor([word, *self.batch.division], device=self.device)
        dist.broadcast(told, 0)
        word, *division = told.tolist()
        if tuple(division) != self.batch.division:
            self.batch.divide(tuple(division))
        return int(word)

    def _hear(self) -> int:
        paused = False
        while paused or not self.commands.empty():
            command, *numbers = self.commands.get().split()
            if command == "stop":
                return STOP
            if command == "pause":
                paused = True
                self._say("paused", step=self.batch.done)
            elif command == "go":
                paused = False
                self._say("begun", step=self.batch.done)
            elif command == "batch":
                self.batch.divide(tuple(map(int, numbers)))
        return GO_ON

    def _save(self) -> None:
        self.last_save = time.monotonic()
        if self.rank == 0:
            checkpoint.save(self.state, self.replica, self.batch)

    def _say(self, what: str, **facts: Any) -> None:
        if self.rank == 0:
            say(what, **facts)


if __name__ == "__main__":
    serve(main)
