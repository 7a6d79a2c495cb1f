"""A real engine over paged KV: a GPT on this host whose steps the same policies fill.

The policy object and the view are those of the simulator; here a step is carried out by torch, and takes as
long as it takes. Requests come by the wall clock.
"""

from __future__ import annotations

from experiments.serving.live.engine import LiveOutcome, LiveServing
from experiments.serving.live.kv import KvMemory
from experiments.serving.live.layer_profile import measure_layers, write_layers
from experiments.serving.live.model import PagedGpt, Row, build
from experiments.serving.live.prompts import prompts_of
from experiments.serving.live.reference import generate_alone
from experiments.serving.live.threads import one_thread

__all__ = [
    "KvMemory",
    "LiveOutcome",
    "LiveServing",
    "PagedGpt",
    "Row",
    "build",
    "generate_alone",
    "measure_layers",
    "one_thread",
    "prompts_of",
    "write_layers",
]
