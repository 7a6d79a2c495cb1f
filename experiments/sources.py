"""From a spec's workload to what a family asks for: a Step, a LayerGraph, jobs, requests or a Scenario."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.core import jsonio
from experiments.core.errors import BadInput
from experiments.core.file_states import FileState, file_states
from experiments.core.options import FLASH_3, PLANNED_LOSSES, WorkloadOptions
from experiments.core.package_files import path_of
from experiments.core.progress import Progress, silent
from experiments.core.reading import refusal
from experiments.core.spec import Workload
from experiments.hardware.parts import Device
from experiments.hardware.roofline import op_times
from experiments.models.catalog import ZOO, zoo_model
from experiments.models.served import SERVED
from experiments.models.step_options import OPEN, defaults_of, spell_out
from experiments.readers import request_rows
from experiments.readers.adapter_config import with_adapter
from experiments.readers.base import open_file
from experiments.readers.job_profiles import open_profiles
from experiments.readers.job_rows import apply_options, implausible
from experiments.workloads import generated_jobs, generated_requests
from experiments.workloads.jobs import JobTrace
from experiments.workloads.kernel_times import timed_by_kernels
from experiments.workloads.layers import LayerGraph
from experiments.workloads.model import ModelSource
from experiments.workloads.profiles.device_speeds import DeviceSpeeds
from experiments.workloads.published import OF_PUBLISHED, PUBLISHED
from experiments.workloads.requests import RequestTrace
from experiments.workloads.samples import check_documents, refuse_images
from experiments.workloads.scenario import Scenario
from experiments.workloads.step import Step
from experiments.workloads.transformer import from_config, has_closed_form
from experiments.workloads.transformer_layers import (
    ATTENTION_RATES,
    CAPTURED,
    at_granularity,
    transformer_layers,
)

#: How sources begin that are drawn instead of read, and the speeds that they have where nobody names others.
GENERATED = "generated:"
SPEEDS_OF_GENERATED = "package:gavel-speeds.json"


@dataclass(frozen=True)
class Loaded:
    """A workload's content with its identity and what its reader assumed or doubts."""

    value: Any
    kind: str
    format: str
    sha256: str
    assumed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def load(workload: Workload, seed: int = 0) -> Loaded:
    """Open ``workload``: a zoo name, a trace drawn from ``seed``, or a file of any format read.

    Files are of the package or named by their path; one that was written since is read again.
    """
    named = [workload.options.extra]
    if not workload.source.startswith(("zoo:", GENERATED)):
        named.append(workload.source)
    states = (state for name in named if name for state in file_states(path_of(name)))
    return _load(workload, seed, tuple(states))


@functools.lru_cache(maxsize=8)
def _load(workload: Workload, seed: int, states: tuple[FileState, ...]) -> Loaded:
    side = workload.options.extra
    options = workload.options if side is None else replace(workload.options, extra=str(path_of(side)))
    if workload.source.startswith("zoo:"):
        name = workload.source.removeprefix("zoo:")
        options, assumed = with_adapter(options)
        model = _published_source(name, workload.source, options) or _served_source(
            name, workload.source, options
        )
        model = model or ModelSource(workload.source, zoo=name, options=options)
        return Loaded(model, "model", "zoo", jsonio.digest(workload.source), assumed)
    if workload.source.startswith(GENERATED):
        return _generated(workload.source.removeprefix(GENERATED), options, seed)
    opened = open_file(path_of(workload.source), workload.format, options)
    reading = opened.reading
    kind, format_name = opened.reader.kind, opened.reader.format
    return Loaded(reading.value, kind, format_name, opened.sha256, reading.assumed, reading.warnings)


def _generated(kind: str, options: WorkloadOptions, seed: int) -> Loaded:
    """A trace drawn from a seed."""
    if kind in generated_requests.KINDS:
        return _generated_requests(kind, options, seed)
    if kind in generated_jobs.KINDS:
        return _generated_jobs(kind, options, seed)
    known = ", ".join((*generated_jobs.KINDS, *generated_requests.KINDS))
    raise BadInput(f"{kind!r:.40} is not generated", "workload.source", known)


def _generated_requests(kind: str, options: WorkloadOptions, seed: int) -> Loaded:
    """Requests; ``options.extra`` is read for how fast a model's layers are."""
    rate, count = generated_requests.settle(options)
    trace = generated_requests.generate(kind, seed, rate, count)
    trace = request_rows.apply_options(trace, replace(options, limit=None, rate=None))
    assumed = (
        f"{count} requests drawn from seed {seed}, {rate:g} per second",
        generated_requests.lengths_in_words(kind),
    )
    identity = jsonio.digest([kind, seed, rate, count])
    return Loaded(trace, "requests", f"generated:{kind}", identity, assumed, request_rows.implausible(trace))


def _generated_jobs(kind: str, options: WorkloadOptions, seed: int) -> Loaded:
    """A job trace drawn from a seed, whose models run as fast as the table says that ``options.extra`` names.

    Without one they do as in Gavel's own table, of jobs that share no devices.
    """
    speeds = open_profiles(Path(options.extra) if options.extra else path_of(SPEEDS_OF_GENERATED))
    if not isinstance(speeds, DeviceSpeeds):
        raise BadInput("is no table of speeds by device type", "options.extra", "simulation_throughputs.json")
    rate, count = generated_jobs.settle(options)
    trace = generated_jobs.generate(kind, seed, rate, count, speeds)
    trace = apply_options(trace, replace(options, limit=None, rate=None, extra=None))
    identity = jsonio.digest([kind, seed, rate, len(trace), speeds.name])
    assumed = (
        f"{len(trace)} jobs drawn from seed {seed}, {rate:g} per second",
        *generated_jobs.KINDS[kind],
    )
    return Loaded(trace, "jobs", f"generated:{kind}", identity, assumed, implausible(trace))


def _published_source(name: str, source: str, options: WorkloadOptions) -> ModelSource | None:
    known = PUBLISHED.get(name)
    return None if known is None else ModelSource(source, config=known.config, options=known.options(options))


def _served_source(name: str, source: str, options: WorkloadOptions) -> ModelSource | None:
    """A model that nobody but the serving family knows: its sizes alone were published."""
    known = SERVED.get(name)
    is_known_elsewhere = name in ZOO
    return (
        None
        if known is None or is_known_elsewhere
        else ModelSource(source, config=known.config, options=options)
    )


def complete_options(workload: Workload, loaded: Loaded, fp32_gradients: bool = False) -> Workload:
    """``workload`` with the options that a model's step leaves open spelled out.

    Anything else is left as it is, and so is a model whose sizes alone are known: it has no step.

    ``fp32_gradients``: as ``core.precision.default_precision`` has it.
    """
    model = loaded.value
    if not isinstance(model, ModelSource) or model.config.get("model_type") in SERVED:
        return workload
    options = spell_out(model.options, defaults_of(model), fp32_gradients)
    told = {name: getattr(options, name) for name in (*OPEN, *OF_PUBLISHED)}
    return replace(workload, options=replace(workload.options, **told))


def repeatable(workload: Workload) -> Workload:
    """``workload`` without a configuration's own dropout, unless that is asked for.

    For runs whose values are compared with those of another run, which would draw other masks.
    """
    model = load(workload).value
    if not isinstance(model, ModelSource) or model.options.dropout or not model.draws_dropout:
        return workload
    return replace(workload, options=replace(workload.options, dropout=False))


def model_of(workload: Workload) -> tuple[ModelSource, Loaded]:
    """The workload as a model; ``BadInput`` for anything else."""
    loaded = load(workload)
    if not isinstance(loaded.value, ModelSource):
        raise refusal(loaded.kind, ("model",), workload.source)
    return loaded.value, loaded


def step_of(workload: Workload, device: Device | None, progress: Progress = silent) -> tuple[Step, Loaded]:
    """The workload as a Step timed for ``device``.

    As measured or read when it has times, else by roofline.
    """
    loaded = load(workload)
    if isinstance(loaded.value, ModelSource):
        return model_step(loaded.value, device, progress), loaded
    if not isinstance(loaded.value, Step):
        raise refusal(loaded.kind, ("model", "step"), workload.source)
    workload.options.refuse_changes(workload.source, "a recorded step is what it is")
    return _timed_for(device, loaded.value), loaded


def model_step(source: ModelSource, device: Device | None, progress: Progress = silent) -> Step:
    """The captured step of a model, timed for ``device`` by roofline."""
    capture = importlib.import_module("experiments.profiling.cache")
    return _timed_for(device, capture.capture_cached(source, progress))


def _timed_for(device: Device | None, step: Step) -> Step:
    return with_roofline_times(step, device) if step.timing == "none" and device is not None else step


def with_roofline_times(step: Step, device: Device) -> Step:
    """``step`` with each op at its roofline time on ``device``; views take no time."""
    seconds = op_times(device, step.ops.flops, step.ops.bytes_moved, step.ops.dtype)
    return step.timed(np.where(step.ops.view, 0.0, seconds), "roofline", device.name)


def roofline_layers(graph: LayerGraph, device: Device) -> LayerGraph:
    """``graph`` at roofline times.

    A pass reads the weights and writes or reads what is kept for the backward pass.
    """
    dtype, traffic = str(graph.facts.get("dtype", "float32")), graph.parameter_bytes + graph.stash_bytes
    return replace(
        graph,
        forward_seconds=op_times(device, graph.forward_flops, traffic, dtype),
        backward_seconds=op_times(device, graph.backward_flops, traffic + graph.parameter_bytes, dtype),
        timing="roofline",
        timed_on=device.name,
    )


def layers_of(
    workload: Workload,
    device: Device | None,
    progress: Progress = silent,
    granularity: str = CAPTURED,
) -> tuple[LayerGraph, Loaded]:
    """The workload as a LayerGraph.

    It is read as one, by the closed form of its configuration, or aggregated from its Step. A decoder-only
    transformer that is known by its sizes needs no capture, however large it is, where who asks wants it by
    blocks or by operators (``granularity``; a calculon sheet comes by blocks unless operators are wanted).
    """
    loaded = load(workload)
    value = loaded.value
    asked = value.options if isinstance(value, ModelSource) else workload.options
    config = _closed_form(value) if granularity != CAPTURED else {}
    answered = ("dropout", "loss", "loss_chunks") if config else ("dropout",)
    asked.refuse_changes(workload.source, "for steps on one device, not for parallel plans", answered)
    _refuse_missing_kernel(asked, device)
    if config:
        value = _transformer(value, config)
    if isinstance(value, LayerGraph):
        return _layers_timed_for(device, at_granularity(value, granularity)), loaded
    from experiments.workloads.aggregate import layer_graph

    step, loaded = step_of(workload, device, progress)
    return layer_graph(step), loaded


def _refuse_missing_kernel(options: WorkloadOptions, device: Device | None) -> None:
    """FlashAttention 3 is for one generation of devices."""
    if options.attention == FLASH_3 and device and not device.kernels.attention_of_2024:
        what = f"attention {FLASH_3!r} on {device.name}, which has no such kernel"
        raise BadInput(what, "options.attention", "a Hopper device, or attention flash")


def _closed_form(value: Any) -> Mapping[str, Any]:
    """The configuration of a model that is known by its sizes; empty for anything else."""
    if not isinstance(value, ModelSource):
        return {}
    config = value.config or (zoo_model(value.zoo).config if value.zoo else {})
    return config if has_closed_form(config) else {}


def _layers_timed_for(device: Device | None, graph: LayerGraph) -> LayerGraph:
    if graph.timing != "none" or device is None:
        return graph
    return timed_by_kernels(graph, device) if graph.work else roofline_layers(graph, device)


def _transformer(source: ModelSource, config: Mapping[str, Any]) -> LayerGraph:
    """The configuration's model in closed form, with the step that a capture would have by default."""
    usual = defaults_of(source)
    options = spell_out(source.options, usual)
    sequence = options.sequence or 0
    refuse_images(source.name, options)
    check_documents(sequence, options)
    model = from_config(source.name, config, sequence)
    return transformer_layers(
        replace(model, document=options.document, dropout=model.dropout and options.dropout is not False),
        batch=options.batch or usual.batch,
        dtype=options.dtype or usual.dtype,
        optimizer=options.optimizer or usual.optimizer,
        kernels="eager" if options.kernels == "auto" else options.kernels,
        fused_attention=options.attention != "math",
        loss_chunks=options.loss_chunks if options.loss in ("chunked", "fused") else 0,
        keeps_logits=options.loss != "fused",
        loss=options.loss if options.loss in PLANNED_LOSSES else "whole",
        attention_rate=ATTENTION_RATES.get(options.attention, 1.0),
        copies_keys=options.attention == "flash-copied",
    )


def jobs_of(workload: Workload, seed: int = 0) -> tuple[JobTrace, Loaded]:
    """The workload as a job trace, a generated one drawn from ``seed``; ``BadInput`` for anything else."""
    loaded = load(workload, seed) if workload.source.startswith(GENERATED) else load(workload)
    if not isinstance(loaded.value, JobTrace):
        raise refusal(loaded.kind, ("jobs",), workload.source)
    return loaded.value, loaded


def requests_of(workload: Workload, seed: int = 0) -> tuple[RequestTrace, Loaded]:
    """The workload as the requests of one language model, those generated drawn from ``seed``.

    ``BadInput`` for anything else.
    """
    loaded = load(workload, seed) if workload.source.startswith(GENERATED) else load(workload)
    if isinstance(loaded.value, Scenario):
        raise BadInput(
            "is a scenario of several models", workload.source, "requests with prompts and outputs"
        )
    if not isinstance(loaded.value, RequestTrace):
        raise refusal(loaded.kind, ("requests",), workload.source)
    return loaded.value, loaded


def scenario_of(workload: Workload) -> tuple[Scenario, Loaded]:
    """The workload as models that are served together; ``BadInput`` for anything else."""
    loaded = load(workload)
    if not isinstance(loaded.value, Scenario):
        what = "is a trace of one model's requests" if isinstance(loaded.value, RequestTrace) else "is none"
        raise BadInput(what, workload.source, "a serving-scenario: models with load, objective and cost")
    return loaded.value, loaded
