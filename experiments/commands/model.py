"""``profile`` and ``capture``: a model's Step, timed on this host or not."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from experiments.commands.output import json_option, progress_of, progress_option, write_json
from experiments.commands.run import read_text
from experiments.core import jsonio, knobs
from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.progress import Progress, part, silent
from experiments.core.spec import Workload
from experiments.core.units import human
from experiments.sources import model_of
from experiments.summaries import peak_bars, summary
from experiments.workloads import storage
from experiments.workloads.model import ModelSource
from experiments.workloads.step import Step

NOTHING: Mapping[str, Any] = MappingProxyType({})
#: Tokens of a layer profile where no number is told: as many as the model has positions.
LONGEST = 10**6


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    capture = verbs.add_parser("capture", help="capture a model's step under fake tensors")
    profile = verbs.add_parser("profile", help="time a model's step on this host")
    profile.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda when there is one")
    profile.add_argument(
        "--serving",
        action="store_true",
        help="its layers as a serving engine runs them, into the folder --out",
    )
    for parser, call in ((capture, call_capture), (profile, call_profile)):
        parser.add_argument("model", help="zoo:NAME or a model file")
        parser.add_argument("--format", default="auto")
        parser.add_argument(
            "--options", default="{}", help='workload options as JSON, or @FILE, e.g. {"batch": 8}'
        )
        parser.add_argument("--out", type=Path, help="store the step here")
        json_option(parser)
        progress_option(parser)
        parser.set_defaults(call=call)
    law = "with --json: the memory of training at any batch and sequence, too"
    forms = "with --json: the memory with any optimizer, and of training adapters, too"
    capture.add_argument("--law", action="store_true", help=law)
    capture.add_argument("--forms", action="store_true", help=forms)
    capture.add_argument("--step", type=Path, help="the step as it was captured before")


def options_of(text: str) -> WorkloadOptions:
    given = jsonio.loads(read_text(text[1:]) if text.startswith("@") else text, "options")
    if not isinstance(given, dict):
        raise BadInput(f"{given!r:.80} is not an object", "options", "a JSON object")
    options: WorkloadOptions = knobs.load(WorkloadOptions, given, "options")
    return options


def _model(arguments: argparse.Namespace) -> ModelSource:
    return model_of(Workload(arguments.model, arguments.format, options_of(arguments.options)))[0]


def call_capture(arguments: argparse.Namespace) -> None:
    profiling = importlib.import_module("experiments.profiling.cache")
    progress, share = progress_of(arguments), 0.4 if arguments.law or arguments.forms else 1.0
    model = _model(arguments)
    known = storage.load(arguments.step) if arguments.step else None
    step = known or profiling.capture_cached(model, part(progress, 0.0, share))
    rest = part(progress, share, 1.0)
    law = _law(model, step, rest) if arguments.law else {}
    _deliver(step, arguments, {**law, **(_updates(model, step) if arguments.forms else {})}, rest)


def _law(model: ModelSource, step: Step, progress: Progress) -> dict[str, Any]:
    """The law of its memory, or the reason why it has none."""
    profiling = importlib.import_module("experiments.profiling.memory_law")
    try:
        return {"law": profiling.tell_law(model, step, progress)}
    except BadInput as error:
        return {"law": {"reason": str(error)}}


def _updates(model: ModelSource, step: Step) -> dict[str, Any]:
    profiling = importlib.import_module("experiments.profiling.memory_law")
    return {"updates": profiling.tell_updates(model, step)}


def call_profile(arguments: argparse.Namespace) -> None:
    if arguments.serving:
        return _profile_serving(arguments)
    profiling = importlib.import_module("experiments.profiling.timing")
    return _deliver(profiling.profile(_model(arguments), arguments.device, progress_of(arguments)), arguments)


def _profile_serving(arguments: argparse.Namespace) -> None:
    """A layer profile of this host: ``options.extra`` of a request trace."""
    if arguments.out is None:
        raise BadInput("no folder for the profile", "--out", "a folder")
    options = options_of(arguments.options)
    measured = importlib.import_module("experiments.serving.experiment.measured")
    live = importlib.import_module("experiments.serving.live")
    device, dtype = arguments.device or live.default_device(), options.dtype or "float32"
    longest = options.sequence or LONGEST
    host = measured.prepare(arguments.model, dtype, 0, longest, progress_of(arguments), device)
    live.write_layers(host.times, arguments.out)
    longest = min(longest, host.model.positions)
    print(f"{arguments.model}: layers up to {longest} tokens, in {arguments.out}/tp1")


def _deliver(
    step: Step,
    arguments: argparse.Namespace,
    more: Mapping[str, Any] = NOTHING,
    progress: Progress = silent,
) -> None:
    if arguments.out:
        storage.save(step, arguments.out)
    if arguments.json:
        facts = {"name": step.name, "timing": step.timing, "timed_on": step.timed_on, **step.facts}
        found, bars = summary(step), _bars(step, arguments, progress)
        return write_json({**facts, **more, "summary": {**found, "plots": [*bars, *found["plots"]]}})
    print(
        f"{step.name}: {len(step.ops)} ops, {len(step.tensors)} tensors, live peak "
        f"{human(step.live_peak, 'bytes')}"
    )
    if step.timing != "none":
        print(f"op times sum to {human(step.seconds, 's')} on {step.timed_on} ({step.timing})")
    return None


def _bars(step: Step, arguments: argparse.Namespace, progress: Progress) -> list[dict[str, Any]]:
    """The memory of every form of training: captures of their own, which a capture makes where asked to."""
    if not getattr(arguments, "forms", True):
        return []
    forms = importlib.import_module("experiments.profiling.training_forms")
    return peak_bars(forms.capture_forms(_model(arguments), step, progress))
