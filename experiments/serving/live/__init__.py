"""Real engines: a GPT on this host carries out what the policies choose.

Policy, view and engine are those of the simulator; here a pass is carried out by torch, and takes as long as
it takes. Requests come by the wall clock.
"""

from __future__ import annotations

from experiments.profiling.timing import default_device, device_name
from experiments.serving.live.batches import TorchBatches
from experiments.serving.live.bookkeeping import (
    Lengths,
    measure_bookkeeping,
    measure_prompts,
    measure_waking,
    middle_of,
)
from experiments.serving.live.kv import KvMemory
from experiments.serving.live.layer_profile import measure_layers, write_layers
from experiments.serving.live.model import PagedGpt, Row, build
from experiments.serving.live.pace_meter import PaceMeter
from experiments.serving.live.prompts import prompts_of
from experiments.serving.live.reference import generate_alone
from experiments.serving.live.steps import TorchSteps
from experiments.serving.live.threads import one_thread
from experiments.serving.live.wall_clock import WallClock

__all__ = [
    "KvMemory",
    "Lengths",
    "PaceMeter",
    "PagedGpt",
    "Row",
    "TorchBatches",
    "TorchSteps",
    "WallClock",
    "build",
    "default_device",
    "device_name",
    "generate_alone",
    "measure_bookkeeping",
    "measure_layers",
    "measure_prompts",
    "measure_waking",
    "middle_of",
    "one_thread",
    "prompts_of",
    "write_layers",
]
