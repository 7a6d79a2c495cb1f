"""What the advisor answers where practitioners are known to have an answer, and how long it searches.

Each question is a process of its own (``python -m experiments advise``). Seconds are the processor's: other
work on the machine counts little. ``usual`` is what is run in practice; a plan that differs is no error, the
answer's reasons say why it is taken.

    python -m benchmarks.advise_at_scale [--only 7b,70b] [--timeout 300]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys

#: Model, hardware, nodes, batch, sequence, what is usual, and the seconds that an answer may take.
QUESTIONS = {
    "7b": ("llama2-7b", "dgx-h100", 1, 128, 4096, "data parallel with ZeRO or FSDP, TP 1", 30),
    "70b": ("llama2-70b", "dgx-h100", 32, 1024, 4096, "TP 2-8 x PP 2-8", 60),
    "175b": ("megatron-175b", "dgx-a100", 128, 1536, 2048, "TP 8 x PP 8-16", 60),
    "405b": ("llama3.1-405b", "grand-teton-h100", 2048, 2048, 8192, "near TP 8 x PP 16", 60),
    "mixture": ("mixtral-8x7b", "dgx-h100", 8, 512, 4096, "experts divided", 60),
    "7b-24g": ("llama2-7b", "rtx-4090-24g", 1, 1, 2048, "offload with checkpointing", 60),
    "fits": ("gpt2", "h100-80g", 1, 8, 1024, "nothing", 30),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="names with commas")
    parser.add_argument("--timeout", type=float, default=300.0)
    arguments = parser.parse_args()
    chosen = arguments.only.split(",") if arguments.only else list(QUESTIONS)
    slow = [name for name in chosen if not _row(name, arguments.timeout)]
    print(f"{len(chosen) - len(slow)} of {len(chosen)} within their time", *slow)


def _row(name: str, timeout: float) -> bool:
    """Print the question's answer; whether it came in time."""
    model, hardware, nodes, batch, sequence, usual, most = QUESTIONS[name]
    sizes = ("--batch", str(batch), "--sequence", str(sequence))
    where = ("--hardware", hardware, "--nodes", str(nodes))
    command = [sys.executable, "-m", "experiments", "advise", f"zoo:{model}", *where, *sizes, "--json"]
    before = _processor_seconds()
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    seconds = _processor_seconds() - before
    print(f"{name:8} {seconds:5.1f} of {most} s   usual: {usual}")
    if done.returncode:
        print(f"         {done.stderr.strip()}")
        return False
    document = json.loads(done.stdout)["document"]
    print(f"         {document['finding']}: {document['price']}")
    for plan in document["plans"]:
        figures = f"{plan['seconds']:.4g} s, {plan['peak'] / 2**30:.1f} GiB"
        print(f"         {plan['letter']} {plan['name']}, {figures}")
    return seconds <= most


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
