"""What the walkers bring: files as people have them, of real size."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from playwright.sync_api import FilePayload

#: The configurations that lie beside the weights of Qwen2-1.5B and of Llama 2 7B.
QWEN2 = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_act": "silu",
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "max_position_embeddings": 131072,
    "max_window_layers": 28,
    "num_attention_heads": 12,
    "num_hidden_layers": 28,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 131072,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_sliding_window": False,
    "vocab_size": 151936,
}
LLAMA2 = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "max_position_embeddings": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "rms_norm_eps": 1e-05,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "vocab_size": 32000,
}
#: A published trace of one of Philly's virtual clusters.
JOBS = Path("cluster/elasticflow/philly_103959.csv")


def config(name: str, fields: dict[str, Any]) -> FilePayload:
    return {"name": name, "mimeType": "application/json", "buffer": json.dumps(fields, indent=2).encode()}


def job_trace(shared: Path) -> FilePayload:
    """The published trace where it lies beside the checkout, else a drawn one with as many jobs."""
    real = shared / JOBS
    content = real.read_bytes() if real.is_file() else _draw_jobs(876)
    return {"name": JOBS.name, "mimeType": "text/csv", "buffer": content}


def _draw_jobs(count: int) -> bytes:
    """Arrivals of a month, sizes and durations as skewed as those of shared clusters."""
    draw, now = random.Random(7), 0.0
    rows = ["job,submit,gpus,service"]
    for number in range(count):
        now += draw.expovariate(count / 2.6e6)
        gpus = draw.choice((1, 1, 1, 1, 2, 4, 8, 16))
        rows.append(f"j{number},{now:.0f},{gpus},{draw.lognormvariate(9, 2) + 60:.0f}")
    return "\n".join(rows).encode()


def profiler_trace(folder: Path, steps: int) -> Path:
    """Recorded here by ``torch.profiler``: training steps of a small transformer."""
    import torch

    model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 6)
    optimizer = torch.optim.AdamW(model.parameters())
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu, record_shapes=True, profile_memory=True) as profiler:
        for _ in range(steps):
            model(torch.randn(2, 16, 64)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    profiler.export_chrome_trace(str(folder / "step.json"))
    return folder / "step.json"
