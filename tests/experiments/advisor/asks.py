"""Small asks for the advisor: a language model whose logits are large, and devices made tiny."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from experiments.advisor import Ask
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload

#: 6 layers of 128 and 4,096 words: logits of 512 tokens are as large as the layers' activations.
CONFIG = {
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_hidden_layers": 6,
    "vocab_size": 4096,
    "max_position_embeddings": 128,
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
    return Ask(Workload(source, "auto", WorkloadOptions(**options)), device(memory), goal)
