"""One device that trains a model and is asked for answers of it: what a sharing policy says is carried out.

``layers``      a model's weights in one region of pinned host memory and one of the device, by layers.
``passes``      a forward pass in a thread of its own, which goes as far as it is let.
``trainer``     training in a thread, which stops at its next layer.
``device``      the actions of a policy, one request after another.
``cold_start``  a process that starts, loads the model and answers.
"""

from __future__ import annotations

from experiments.serving.live.switching.cold_start import ColdStart, start_cold
from experiments.serving.live.switching.device import SwitchingDevice
from experiments.serving.live.switching.layers import LayeredModel

__all__ = ["ColdStart", "LayeredModel", "SwitchingDevice", "start_cold"]
