"""One process of a gang: trains a job from its last checkpoint on, and stops between two steps when told to.

The only argument is a JSON object (``gang_process.start``). Commands come as lines on the standard input of
rank 0: ``stop`` (save and exit), ``pause`` and ``go``; ``share`` and a number comes to all ranks (``pace``).
It answers in JSON lines: ``begun`` at its first step, ``step`` now and then, ``paused``, and ``done`` or
``stopped`` with the step that was saved. Every process ends when its input ends, that is with whoever started
it.
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

from experiments.cluster.live.pace import Pace

#: Seconds between two reports of progress.
REPORT_EVERY = 0.05
GO_ON, STOP, PAUSE = 0, 1, 2


def main() -> None:
    asked = json.loads(sys.argv[1])
    if asked["core"] is not None:
        os.sched_setaffinity(0, {asked["core"]})
    commands: queue.SimpleQueue[str] = queue.SimpleQueue()
    pace = Pace(asked.get("share", 1.0))
    threading.Thread(target=listen, args=(commands, pace), daemon=True).start()
    if "share" in asked:
        pace.hold_start()
    training = Training(asked, commands, pace)
    pace.release()
    training.run()
    sys.stdout.flush()
    os._exit(0)  # what torch would tear down takes longer than many a step


def listen(commands: queue.SimpleQueue[str], pace: Pace) -> None:
    """Pass on what comes; end the process when nobody can say anything any more."""
    for line in sys.stdin:
        command, _, share = line.strip().partition(" ")
        if command == "share":
            pace.share = float(share)
        else:
            commands.put(command)
    os._exit(1)


def say(what: str, **facts: Any) -> None:
    sys.stdout.write(json.dumps({"said": what, **facts}) + "\n")
    sys.stdout.flush()


class Training:
    """A job's model, optimizer and place in its steps."""

    def __init__(self, asked: dict[str, Any], commands: queue.SimpleQueue[str], pace: Pace) -> None:
        import torch

        from experiments.cluster.live.models import training_task

        self.asked, self.commands, self.pace = asked, commands, pace
        self.rank, self.ranks, self.steps = asked["rank"], asked["ranks"], asked["steps"]
        self.state = Path(asked["folder"]) / "state.pt"
        torch.set_num_threads(1)
        torch.set_flush_denormal(True)
        self.device = "cuda" if asked["gpu"] is not None else "cpu"
        self.task = training_task(asked["model"], asked["seed"])
        self.model = self.task.model.to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.step, self.loss, self.last_save = 0, 0.0, time.monotonic()
        if self.ranks > 1:
            self._meet()
        self._load()

    def _meet(self) -> None:
        import torch.distributed as dist

        meeting = f"file://{self.asked['meeting']}"
        kind = "nccl" if self.device == "cuda" else "gloo"
        dist.init_process_group(kind, meeting, rank=self.rank, world_size=self.ranks)

    def run(self) -> None:
        """Train until the last step or until told to stop; the state is saved either way."""
        began, used, first = time.monotonic(), time.process_time(), self.step
        self._say("begun", step=self.step)
        reported = began
        stopped = False
        while self.step < self.steps:
            if self._told() == STOP:
                stopped = True
                break
            self._train()
            self.pace.wait(lambda: not self.commands.empty())
            now = time.monotonic()
            if now - reported >= REPORT_EVERY:
                reported = now
                self._say("step", step=self.step)
            every = self.asked["checkpoint_every"]
            if every is not None and now - self.last_save >= every:
                self._save()
                self._say("saved", step=self.step)
        computing = time.process_time() - used
        seconds = time.monotonic() - began
        self._save()
        told = {"step": self.step, "steps": self.step - first, "seconds": seconds, "computing": computing}
        self._say("stopped" if stopped else "done", loss=self.loss, **told)

    def _told(self) -> int:
        """What the gang does before its next step; rank 0 hears it, the others hear it of rank 0."""
        word = GO_ON
        if self.rank == 0:
            word = self._hear()
        if self.ranks == 1:
            return word
        import torch
        import torch.distributed as dist

        told = torch.tensor([word], device=self.device)
        dist.broadcast(told, 0)
        return int(told)

    def _hear(self) -> int:
        paused = False
        while paused or not self.commands.empty():
            command = self.commands.get()
            if command == "stop":
                return STOP
            if command == "pause":
                paused = True
                self._say("paused", step=self.step)
            elif command == "go":
                paused = False
                self._say("begun", step=self.step)
        return GO_ON

    def _train(self) -> None:
        """One step of the whole batch, of which this process computes its part."""
        import torch

        from experiments.cluster.live.models import loss_of

        inputs, targets = (value.tensor_split(self.ranks)[self.rank] for value in self.task.draw())
        inputs, targets = inputs.to(self.device), targets.to(self.device)
        self.optimizer.zero_grad(set_to_none=True)
        loss = loss_of(self.model(inputs), targets, self.task.batch)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.ranks > 1:
            self._add_up()
        self.optimizer.step()
        self.step += 1
        self.loss = float(loss.detach()) * self.ranks  # of its own part; the whole batch's in one process
        if self.device == "cuda":
            torch.cuda.synchronize()

    def _add_up(self) -> None:
        """Gradients of all parts, in one message."""
        import torch
        import torch.distributed as dist
        from torch.nn.utils import parameters_to_vector, vector_to_parameters

        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        with torch.no_grad():
            together = parameters_to_vector(gradients)
            dist.all_reduce(together)
            vector_to_parameters(together, gradients)

    def _save(self) -> None:
        """Model, optimizer, random state and step; whole or not at all."""
        import torch

        self.last_save = time.monotonic()
        if self.rank:
            return
        half = self.state.with_suffix(".half")
        held = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save({**held, "random": torch.get_rng_state(), "step": self.step}, half)
        half.replace(self.state)

    def _load(self) -> None:
        import torch

        if not self.state.is_file():
            return
        kept = torch.load(self.state, map_location=self.device, weights_only=True)
        self.model.load_state_dict(kept["model"])
        self.optimizer.load_state_dict(kept["optimizer"])
        torch.set_rng_state(kept["random"].cpu())
        self.step = kept["step"]

    def _say(self, what: str, **facts: Any) -> None:
        if self.rank == 0:
            say(what, **facts)


if __name__ == "__main__":
    main()
