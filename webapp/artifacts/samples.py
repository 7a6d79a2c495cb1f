"""Samples to try: made here from fixed seeds, so that nothing is downloaded and every installation has the
same bytes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """``content`` makes the file's bytes; the same on every call."""

    name: str
    title: str
    file_name: str
    content: Callable[[], bytes]


def gpt2_config() -> bytes:
    """The shape of GPT-2 124M as a Hugging Face ``config.json``."""
    config = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "n_positions": 1024,
        "n_ctx": 1024,
        "vocab_size": 50257,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
    }
    return json.dumps(config, indent=2).encode()


def small_jobs() -> bytes:
    """Forty jobs: Poisson arrivals, a few long ones, gangs of 1 to 8 GPUs."""
    rng, now, rows = random.Random(7), 0.0, ["job,submit,gpus,service"]
    for job in range(40):
        now += rng.expovariate(1 / 90)
        service = rng.lognormvariate(6.2, 1.1)
        rows.append(f"{job},{now:.0f},{rng.choice((1, 1, 1, 2, 2, 4, 8))},{max(service, 30):.0f}")
    return ("\n".join(rows) + "\n").encode()


def small_requests() -> bytes:
    """Three hundred chat-like requests at two a second: long prompts, shorter answers."""
    rng, now, rows = random.Random(11), 0.0, ["arrival,prompt,output"]
    for _ in range(300):
        now += rng.expovariate(2.0)
        prompt, output = rng.lognormvariate(5.6, 0.9), rng.lognormvariate(4.6, 0.8)
        rows.append(f"{now:.3f},{min(int(prompt) + 1, 4000)},{min(int(output) + 1, 1000)}")
    return ("\n".join(rows) + "\n").encode()


SAMPLES: Mapping[str, Sample] = {
    sample.name: sample
    for sample in (
        Sample("gpt2", "GPT-2 124M as a config.json", "gpt2-config.json", gpt2_config),
        Sample("jobs", "a trace of 40 cluster jobs", "forty-jobs.csv", small_jobs),
        Sample("requests", "a trace of 300 serving requests", "three-hundred-requests.csv", small_requests),
    )
}
