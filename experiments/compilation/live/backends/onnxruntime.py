"""``onnxruntime``: the model as an ONNX graph, optimized and run by ONNX Runtime on the CPU.

An uploaded ONNX file is run as it is; any other model is exported by torch first (exporter's own constant
folding included: that graph is the "exported" row). Every level's graph is counted, the chosen one is run.
Graphs beyond level "extended" may hold layouts of this processor, so none is kept.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments.compilation.live.backends.base import (
    CompilationFailed,
    Compiled,
    Task,
    clock_compilation,
    unsupported_backend,
)
from experiments.compilation.live.calls import in_structure
from experiments.compilation.live.export import DATA_DECIDE, NoOneGraph
from experiments.core.errors import BadInput, LabError

#: Levels by the names of the policy's knob.
LEVELS: Mapping[str, str] = {
    "disable_all": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "layout": "ORT_ENABLE_LAYOUT",
    "all": "ORT_ENABLE_ALL",
}
#: Weights of at least this many bytes are written next to a counted graph, not into it (protobuf ends at 2
#: GiB).
INLINE_BYTES = "1024"


def build(task: Task, options: Mapping[str, Any]) -> Compiled:
    """Return ``options``: level, one of ``LEVELS``."""
    runtime = _library()
    _check(task)
    level = str(options.get("level", "all"))
    with tempfile.TemporaryDirectory() as folder:
        with clock_compilation() as clock:
            own = _uploaded_graph(task)
            file = own or export_model(task, Path(folder) / "model.onnx")
            session = _session(runtime, file, level)
            call = _caller(session, task)
            _try_call(call, task)
        levels = {name: _count_optimized(runtime, file, name, Path(folder)) for name in LEVELS}
        report = {
            "level": level,
            "graph": "the uploaded file" if own else "exported by torch",
            "exported": count_nodes(file),
            "levels": levels,
        }
    call = in_structure(call, task)
    nodes = {"onnx_nodes": levels[level]["nodes"]}
    return Compiled(
        call, clock.wall, clock.cpu, nodes, report, uncounted="ONNX Runtime has its own allocator"
    )


def _library() -> Any:
    try:
        return importlib.import_module("onnxruntime")
    except ImportError:
        raise unsupported_backend("the package onnxruntime is not installed", "onnxruntime") from None


def _check(task: Task) -> None:
    if task.training:
        raise BadInput("onnxruntime runs forward passes", "knobs.training", "false")
    if task.device != "cpu":
        raise unsupported_backend(
            f"this onnxruntime runs on processors, the model is on {task.device}", "onnxruntime"
        )
    for value in (*task.inputs, *task.module.parameters()):
        if value.dtype == torch.bfloat16:
            raise unsupported_backend("onnxruntime computes nothing in bfloat16 on processors", "onnxruntime")


def _uploaded_graph(task: Task) -> Path | None:
    program = task.source.program if task.source else None
    return task.file if program is not None and program.format == "onnx" else None


def export_model(task: Task, file: Path) -> Path:
    """Return the module as torch's exporter writes it, weights next to the graph.

    ``NoOneGraph`` where data decide what it does.
    """
    if importlib.util.find_spec("onnxscript") is None:
        raise unsupported_backend("torch's exporter needs the package onnxscript", "onnxruntime")
    try:
        with _quiet():
            program = torch.onnx.export(task.module, task.inputs, dynamo=True, verbose=False)
    except torch.onnx.OnnxExporterError as error:
        if isinstance(error.__cause__, DATA_DECIDE):
            raise NoOneGraph(error.__cause__) from error
        raise CompilationFailed(f"onnx export: {_first_line(error)}") from error
    assert program is not None
    program.save(file, external_data=True)
    return file


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's warnings about packages that it could also have exported, and the graph that it
    prints where it fails.
    """
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def _session(runtime: Any, file: Path, level: str, settings: Callable[[Any], None] | None = None) -> Any:
    """Return as many threads as torch has.

    They sleep between calls, or eager would be timed while they spin.
    """
    chosen = runtime.SessionOptions()
    chosen.graph_optimization_level = getattr(runtime.GraphOptimizationLevel, LEVELS[level])
    chosen.intra_op_num_threads, chosen.inter_op_num_threads = torch.get_num_threads(), 1
    chosen.log_severity_level = 3
    chosen.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if settings is not None:
        settings(chosen)
    try:
        return runtime.InferenceSession(str(file), chosen, providers=["CPUExecutionProvider"])
    except _errors() as error:
        raise CompilationFailed(f"onnxruntime: {_first_line(error)}") from error


def _errors() -> tuple[type[Exception], ...]:
    state = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    names = (
        "Fail",
        "InvalidArgument",
        "InvalidGraph",
        "InvalidProtobuf",
        "NotImplemented",
        "RuntimeException",
    )
    return tuple(getattr(state, name) for name in names)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:500]


def _caller(session: Any, task: Task) -> Callable[..., list[Tensor]]:
    """Return tensors in, tensors out; numbers of an uploaded graph have the types that it asks for."""
    wanted = {entry.name: entry.type for entry in session.get_inputs()}
    program = task.source.program if task.source and _uploaded_graph(task) else None
    names = [entry.name for entry in program.inputs] if program else list(wanted)
    outputs = list(program.given(training=False)) if program else None

    def call(*inputs: Tensor) -> list[Tensor]:
        feed = {
            name: _as(value, wanted[name]).detach().numpy()
            for name, value in zip(names, inputs, strict=True)
            if name in wanted
        }
        return [torch.as_tensor(value) for value in session.run(outputs, feed)]

    return call


#: ONNX Runtime's names of element types that are not torch's own.
_TYPES = {"float": "float32", "double": "float64"}


def _as(value: Tensor, kind: str) -> Tensor:
    """Return ``value`` as ``tensor(int32)`` and the like."""
    name = kind.removeprefix("tensor(").removesuffix(")")
    found: torch.dtype = getattr(torch, _TYPES.get(name, name))
    return value.to(found)


def _try_call(call: Callable[..., Any], task: Task) -> None:
    try:
        call(*task.inputs)
    except _errors() as error:
        raise CompilationFailed(f"onnxruntime: {_first_line(error)}") from error


def _count_optimized(runtime: Any, file: Path, level: str, folder: Path) -> dict[str, Any]:
    """Return nodes of the graph as this level leaves it."""
    out = folder / f"{level}.onnx"

    def write(chosen: Any) -> None:
        chosen.optimized_model_filepath = str(out)
        prefix = "session.optimized_model_external_initializers_"
        chosen.add_session_config_entry(prefix + "file_name", f"{level}.weights")
        chosen.add_session_config_entry(prefix + "min_size_in_bytes", INLINE_BYTES)

    _session(runtime, file, level, write)
    return count_nodes(out)


def count_nodes(file: Path) -> dict[str, Any]:
    """Return nodes of a graph file, those of its branches and loops among them, and how many of each op."""
    try:
        onnx = importlib.import_module("onnx")
    except ImportError:
        raise LabError("counting ONNX nodes needs the package onnx, 1.21 or newer") from None
    graph = onnx.load(str(file), load_external_data=False).graph
    ops = Counter(_op_types(graph.node))
    return {"nodes": ops.total(), "ops": dict(ops.most_common())}


def _op_types(nodes: Sequence[Any]) -> Iterator[str]:
    for node in nodes:
        yield f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _op_types(graph.node)
