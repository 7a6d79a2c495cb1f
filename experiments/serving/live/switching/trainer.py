"""Training in a thread that stops at its next layer, forward or backward.

At each layer the thread waits for the device and looks whether it is to stop, as PipeSwitch's workers do: so
nothing is queued behind which a request would wait. In the backward pass a layer is where a gradient has
come. The iteration that is stopped is lost.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import torch
from torch import nn

from experiments.serving.live.switching.layers import LayeredModel, new_stream
from experiments.serving.live.switching.passes import PATIENCE

RATE = 1e-4


class Trainer:
    """Plain gradient descent on the model's batch until it is stopped, and again when it may go on."""

    def __init__(self, model: LayeredModel) -> None:
        self.model = model
        self.iterations = 0
        self.stream = new_stream(model.on_cuda)
        self._stop, self._go = threading.Event(), threading.Event()
        self._stopped, self._cleaned, self._first = threading.Event(), threading.Event(), threading.Event()
        self._cleaned.set()
        self._closed = False
        self._error: BaseException | None = None
        self._hooks: list[Any] = [
            layer.module.register_forward_pre_hook(lambda *_: self._look()) for layer in model.layers
        ]
        for parameter in model.module.parameters():
            if parameter.requires_grad:
                hook = parameter.register_post_accumulate_grad_hook(lambda _: self._look())  # type: ignore[no-untyped-call]
                self._hooks.append(hook)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def resume(self) -> None:
        """Train; return once an iteration began."""
        self._stop.clear()
        self._stopped.clear()
        self._cleaned.clear()
        self._first.clear()
        self._go.set()
        self._wait(self._first)

    def await_iterations(self, count: int) -> None:
        """Return when so many were made since the beginning."""
        while self.iterations < count:
            if self._error is not None:
                raise self._error
            time.sleep(0.001)

    def stop(self) -> None:
        """Return when the device does nothing for training any more."""
        self._go.clear()
        self._stop.set()
        self._wait(self._stopped)

    def clean(self) -> None:
        """Return when the memory of the stopped iteration is free."""
        self._wait(self._cleaned)

    def close(self) -> None:
        self._closed = True
        self._stop.set()
        self._go.set()
        self._thread.join(PATIENCE)
        for hook in self._hooks:
            hook.remove()

    def _wait(self, event: threading.Event) -> None:
        there = event.wait(PATIENCE)
        if self._error is not None:
            raise self._error
        if not there:
            raise TimeoutError("training does not stop")

    def _look(self) -> None:
        self._first.set()
        if self.stream is not None:
            self.stream.synchronize()
        if self._stop.is_set():
            self._stopped.set()
            raise _Stopped

    def _run(self) -> None:
        try:
            with torch.cuda.stream(self.stream):
                while not self._closed:
                    self._go.wait()
                    self._train_until_stopped()
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits for the trainer
            self._error = error
            for event in (self._first, self._stopped, self._cleaned):
                event.set()

    def _train_until_stopped(self) -> None:
        try:
            while not self._closed:
                self._iterate(self.model.module)
                self.iterations += 1
        except _Stopped:
            pass
        self.model.module.zero_grad(set_to_none=True)
        _forget_stopped_pass()
        self._cleaned.set()

    def _iterate(self, module: nn.Module) -> None:
        loss = module(*self.model.inputs)
        loss.backward()
        self._look()
        with torch.no_grad():
            for parameter in module.parameters():
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad, alpha=RATE)
                    parameter.grad = None


class _Stopped(Exception):
    """A request came."""


def _forget_stopped_pass() -> None:
    """Free what a backward pass that was stopped has saved.

    torch's engine keeps what was still to do in the thread's queue until the next backward pass.
    """
    torch.zeros((), requires_grad=True).backward()  # type: ignore[no-untyped-call]
