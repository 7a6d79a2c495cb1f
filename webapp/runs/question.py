"""What was run, in one line: the step with every option resolved, the hardware and the seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from experiments.core.options import WorkloadOptions
from webapp.presentation import pretty
from webapp.runs.models import Run

#: Options that the sentence says in its own words.
SPOKEN = ("batch", "sequence", "image", "training", "dtype", "precision", "optimizer")

#: What options are where nobody names them.
USUAL: Mapping[str, Any] = asdict(WorkloadOptions())

#: What is computed, by the option ``training``; a whole step otherwise.
PASSES = {False: "a forward pass", "gradients": "a forward and backward pass", "serving": "a pass"}


def question_of(run: Run, with_seed: bool = True) -> str:
    """``A training step of 8 samples of 1,024 tokens in bfloat16 (bf16-mixed) with adamw, on a100-40g``.

    Empty where the run is of no policy. Options beyond the usual ones follow by name.
    """
    if run.kind != Run.Kind.POLICY:
        return ""
    options = {name: value for name, value in step_options(run.spec).items() if value is not None}
    further = {
        name: value for name, value in options.items() if name not in SPOKEN and not _is_usual(name, value)
    }
    others = [f"{name.replace('_', ' ')} {pretty(value)}" for name, value in further.items()]
    what = step_in_words(options) or "The workload as it was read"
    seed = [f"seed {run.seed}"] if run.seed and with_seed else []
    return ", ".join([what, *others, f"on {_where(run)}", *seed])


def _is_usual(name: str, value: Any) -> bool:
    """Whether an option is what a workload has where nobody says anything."""
    return name in USUAL and value == USUAL[name]


def step_options(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a spec's workload as its family takes them.

    A compilation policy computes forward, or backward too where a knob says so, and has no optimizer but SGD.
    """
    options = dict(spec.get("workload", {}).get("options", {}))
    if spec.get("family") == "serving" and "batch" in options:
        untold = ("optimizer", "precision", "dtype")
        return {name: value for name, value in options.items() if name not in untold} | {
            "training": "serving"
        }
    if spec.get("family") != "compilation" or "batch" not in options:
        return options
    knobs = spec.get("knobs", {})
    passes = "update" if knobs.get("update") else "gradients" if knobs.get("training") else False
    kept = {name: value for name, value in options.items() if name not in ("optimizer", "precision")}
    return kept | {"training": passes} | ({"optimizer": "sgd"} if passes == "update" else {})


def step_in_words(options: Mapping[str, Any]) -> str:
    """``A training step of 8 samples of 1,024 tokens in bfloat16 (bf16-mixed) with adamw``; empty without a
    batch. An option of several values has them as a tuple: ``4 or 8 samples``.
    """
    return " ".join(_step(options)) if options.get("batch") else ""


def _step(options: Mapping[str, Any]) -> Iterator[str]:
    passes = options.get("training")
    kinds = passes if isinstance(passes, tuple) else (passes,)
    yield " or ".join(PASSES.get(kind, "a training step") for kind in kinds).capitalize() + " of"
    yield from _samples(options)
    if "dtype" in options:
        yield f"in {_say(options['dtype'])}"
    if "precision" in options:
        yield f"({_say(options['precision'])})"
    if "optimizer" in options:
        yield f"with {_say(options['optimizer'])}"


def _say(value: Any) -> str:
    values = value if isinstance(value, tuple) else (value,)
    return " or ".join(f"{one:,}" if isinstance(one, int) else str(one) for one in values)


def _samples(options: Mapping[str, Any]) -> Iterator[str]:
    batch, sequence, image = options["batch"], options.get("sequence"), options.get("image")
    kind = "image" if image and not sequence else "sample"
    yield f"{_say(batch)} {kind}" if batch == 1 else f"{_say(batch)} {kind}s"
    if sequence:
        yield f"of {_say(sequence)} tokens"
    if image:
        side = f"{_say(image)} pixels a side" if isinstance(image, tuple) else f"{image} x {image} pixels"
        yield f"{'and images ' if sequence else ''}of {side}"


def _where(run: Run) -> str:
    """Its hardware; of a measured run the host."""
    return run.host.name if run.mode == "measured" and run.host else run.hardware
