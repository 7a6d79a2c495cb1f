"""A forward pass in a thread of its own: it waits before each layer until it is let on.

The thread stands ready before anybody asks, with the model's structure and the device's context: PipeSwitch's
standby worker (section 4.4).
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor

from experiments.serving.live.switching.layers import LayeredModel, new_stream

#: Seconds after which a pass that does not come on is a fault.
PATIENCE = 120.0


class GatedPasses:
    """Passes of a model, each as far as ``release`` says; its work goes to a stream of its own."""

    def __init__(self, model: LayeredModel) -> None:
        self.model = model
        self.stream = new_stream(model.on_cuda)
        self.output: Tensor | None = None
        self._gate = threading.Condition()
        self._allowed = self._reached = 0
        self._error: BaseException | None = None
        self._closed = False
        place = {layer.module: index for index, layer in enumerate(model.layers)}
        self._hooks = [
            layer.module.register_forward_pre_hook(lambda module, _: self._pause(place[module]))
            for layer in model.layers
        ]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def release(self, last: int) -> None:
        """Let the pass run before layer ``last``; return when that work was given to the device."""
        with self._gate:
            self._allowed = last
            self._gate.notify_all()
            there = self._gate.wait_for(lambda: self._reached >= last or self._error, PATIENCE)
        if self._error is not None:
            raise self._error
        if not there:
            raise TimeoutError(f"the pass did not come to layer {last}")

    def begin_next(self) -> None:
        """The pass is over; another stands ready."""
        with self._gate:
            self._allowed = self._reached = 0
            self._gate.notify_all()

    def close(self) -> None:
        with self._gate:
            self._closed = True
            self._gate.notify_all()
        self._thread.join(PATIENCE)
        for hook in self._hooks:
            hook.remove()

    def _pause(self, layer: int) -> None:
        """Before a layer: all earlier ones are with the device. Only the pass's own thread waits."""
        if threading.current_thread() is not self._thread or layer < self._reached:
            return
        with self._gate:
            self._reached = layer
            self._gate.notify_all()
            self._gate.wait_for(lambda: self._allowed > layer or self._closed)
        if self._closed:
            raise _Closed

    def _run(self) -> None:
        try:
            with torch.cuda.stream(self.stream), torch.inference_mode():
                while not self._closed:
                    found: Any = self.model.module(*self.model.inputs)
                    self.output = found if isinstance(found, Tensor) else None
                    self._end_pass()
        except _Closed:
            return
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits for the pass
            with self._gate:
                self._error = error
                self._gate.notify_all()

    def _end_pass(self) -> None:
        count = len(self.model.layers)
        with self._gate:
            self._reached = count
            self._gate.notify_all()
            self._gate.wait_for(lambda: self._reached == 0 or self._closed)


class _Closed(Exception):
    """Nobody asks any more."""
