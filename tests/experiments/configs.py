"""What configurations in tests share."""

from __future__ import annotations

from experiments.workloads.hf import USUAL_DROPOUTS

#: A GPT-2 with these draws nothing, so that a captured step and another run of it are equal bit for bit.
NO_DROPOUT = dict.fromkeys(USUAL_DROPOUTS["gpt2"], 0.0)
