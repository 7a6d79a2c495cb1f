"""A process that starts, imports torch, makes a context, builds and loads a model, and answers once.

``python -m experiments.serving.live.switching.cold_start SPEC`` is that process; it prints how long each part
took. ``start_cold`` starts it and tells when its answer came.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from experiments.core import jsonio
from experiments.core.errors import LabError

LONGEST = 300.0
ROOT = Path(__file__).parents[4]


class ColdStart(NamedTuple):
    """Seconds from the request to the answer, and of its parts.

    ``copy`` of the weights from memory that is not pinned, ``first`` and ``second`` pass.
    """

    whole: float
    copy: float
    first: float
    second: float

    @property
    def first_call(self) -> float:
        """What the first pass takes more."""
        return max(0.0, self.first - self.second)

    @property
    def start(self) -> float:
        """Everything before the weights are copied."""
        return max(0.0, self.whole - self.copy - self.first)


def start_cold(workload: dict[str, Any], device: str, seed: int) -> ColdStart:
    """Start a process for ``workload`` (a spec's) and return once its answer is there."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", __name__, jsonio.canonical([workload, device, seed])]
    out = subprocess.PIPE
    with subprocess.Popen(command, text=True, cwd=ROOT, stdout=out, stderr=out) as process:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        whole = time.perf_counter() - begin
        rest, complaint = process.communicate(timeout=LONGEST)
    if not line or process.returncode:
        raise LabError(f"the process that was started ended: {complaint.strip()[-300:]}")
    told = jsonio.loads(rest, "a started process")
    return ColdStart(whole, **told)


def main(text: str) -> None:
    import torch

    from experiments.core.spec import load_workload
    from experiments.models.build import build
    from experiments.sources import model_of

    workload, device, seed = jsonio.loads(text, "a started process")
    torch.manual_seed(seed)
    made = build(model_of(load_workload(workload))[0])
    generator = torch.Generator().manual_seed(seed)
    inputs = [one.sample(torch.float32, generator).to(device) for one in made.batch(False)]

    def wait() -> None:
        if device.startswith("cuda"):
            torch.cuda.synchronize()

    wait()
    times = [time.perf_counter()]
    module = made.module.to(device)
    wait()
    times.append(time.perf_counter())
    with torch.inference_mode():
        for answer in range(2):
            module(*inputs)
            wait()
            times.append(time.perf_counter())
            if not answer:
                _say("answered")
    names = ("copy", "first", "second")
    _say(jsonio.canonical({name: times[n + 1] - times[n] for n, name in enumerate(names)}))
    os._exit(0)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
