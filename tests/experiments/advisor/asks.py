"""Small asks for the advisor: a language model whose logits are large, and devices made tiny."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from experiments.advisor import Ask
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload

#: 3 layers of 64 and 2,048 words: the logits of a sample are larger than what its layers save.
CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_hidden_layers": 3,
    "vocab_size": 2048,
    "max_position_embeddings": 256,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": True,
}


def device(memory: float) -> dict[str, Any]:
    return {"device": "t4-16g", "overrides": {"memory_bytes": memory}}


def model(folder: Path) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(CONFIG))
    return str(path)


def ask(source: str, memory: float, goal: str = "time", **options: Any) -> Ask:
    """Without a margin, unless a test is about it: its numbers are those of the whole memory."""
    margin = options.pop("margin", 0.0)
    return Ask(Workload(source, "auto", WorkloadOptions(**options)), device(memory), goal, margin)
