"""Capture of a whole training step: parameters, optimizer state, buffers and batch in, loss out, as one
graph.

How a caller uses it::

    traced = trace(ModelSource("zoo:gpt2", zoo="gpt2"))         # fake tensors: no memory of the model's size
    traced.step                                                 # the Step: ops, tensors, who reads what
    inputs = traced.make_inputs(seed=0)                         # real tensors, in the order of traced.leaves
    with torch.no_grad():
        loss = traced.graph_module(*inputs)                     # one step; updates the inputs in place
    expected = traced.eager(*traced.make_inputs(seed=0))        # the same step by autograd: bitwise equal

``graph_module`` takes one positional tensor for each of ``leaves`` (parameters, optimizer state, buffers,
batch) and returns the loss (training) or the output. Parameters, optimizer state and running statistics are
updated in place by mutating ops, so the memory a run needs is an eager step's. Op ``i`` of ``step`` is the
node named ``step.ops.name[i]``; ``tensor_of[node name]`` gives the tensor ids that the node's value lies in,
one for each tensor of a multi-output op, so that a view's id is its base's. ``getitem`` nodes are no ops;
they have a ``tensor_of`` too. ``detach`` is taken out of the graph: without autograd it does nothing. To
change the graph, copy it first (``copy.deepcopy(traced.graph_module)``); nodes keep ``meta["val"]``, their
fake value.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.precision import OPTIMIZER_MOMENTS
from experiments.core.progress import Progress, forward_only, silent
from experiments.models.catalog import zoo_model
from experiments.models.parts import split_words
from experiments.profiling.lowering import Lowering, lower
from experiments.profiling.program import Leaf, Program, fake_program, real_inputs
from experiments.profiling.recorder import Recorder
from experiments.workloads.hf import equal_blocks, with_blocks
from experiments.workloads.lengthened import FEWEST, lengthen
from experiments.workloads.model import COMPILED, ModelSource
from experiments.workloads.step import KINDS, Step

# What it would log is in the error that it raises, and that error is told to the user.
logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)


CARRIED_OUT = "a model and options that torch can carry out"


@dataclass(frozen=True)
class Traced:
    """A step's graph, its arguments and its Step; see the module's docstring."""

    source: ModelSource
    device: str
    graph_module: fx.GraphModule
    leaves: tuple[Leaf, ...]
    step: Step
    tensor_of: dict[str, tuple[int, ...]]
    _program: Program

    def make_inputs(self, seed: int = 0) -> list[Tensor]:
        """Real arguments for ``graph_module``, the same for the same seed."""
        return real_inputs(self.source, seed, self.device)

    @property
    def weight_counts(self) -> dict[str, int]:
        """The number of weights that each parameter holds, by the parameter's name."""
        return self._program.weight_counts

    def eager(self, *inputs: Tensor) -> Tensor:
        """The step without the graph: forward, ``torch.autograd``, optimizer. Updates ``inputs`` in place."""
        return self._program(*inputs)


def trace(source: ModelSource, device: str = "cpu", progress: Progress = silent) -> Traced:
    """The step of ``source`` as it runs on ``device``, which must be there unless it is a CPU."""
    progress = forward_only(progress)
    progress(0.0, "building the model")
    program, arguments = fake_program(source, device)
    progress(0.2, "tracing the step")
    recorder = Recorder(lambda: progress(0.0, ""))

    def step(*tensors: Tensor) -> Tensor:
        out = program(*tensors, observer=recorder)
        recorder.finish()
        return out

    try:
        with (
            torch.autograd.set_multithreading_enabled(False),
            _kernels(source, program, recorder),
            _use_lazy_graph_module(True),  # its code is written when it first runs: a capture never does
        ):
            graph_module = make_fx(step, tracing_mode="fake")(*arguments)
    except (DataDependentOutputException, GuardOnDataDependentSymNode) as error:
        what = "has control flow that its data decide, so there is no one step of it"
        raise BadInput(what, source.name, "a model that does the same for all data") from error
    except RuntimeError as error:  # torch's own word for an op that has no such dtype or shape
        what = f"cannot run with dtype {program.options.dtype}: {str(error).splitlines()[0]}"
        raise BadInput(what, source.name, CARRIED_OUT) from error
    except ValueError as error:  # and for sizes that a function checks itself: a batch of one to normalize
        raise BadInput(f"cannot run: {str(error).splitlines()[0]}", source.name, CARRIED_OUT) from error
    _drop_detaches(graph_module)
    progress(0.8, "reading the graph")
    lowering = lower(source.name, graph_module.graph, program.leaves, recorder, lambda: progress(0.0, ""))
    if source.kernels == COMPILED:
        lowering.fuse_kernels()
    lowered = with_state_bytes(lowering.step(_facts(source, program, lowering)))
    progress(1.0, "captured")
    return Traced(source, device, graph_module, program.leaves, lowered, lowering.tensor_of, program)


def capture(source: ModelSource, device: str = "cpu", progress: Progress = silent) -> Step:
    """The Step alone, untimed. Of equal blocks that a model repeats only a few are traced.

    Where the blocks that were traced turn out to differ, all are.
    """
    few, more = few_blocks(source)
    traced = trace(few, device, progress)
    try:
        step = _lengthened(traced, more)
    except BadInput:
        step = trace(source, device, progress).step
    return with_state_bytes(step)


def _lengthened(traced: Traced, more: Mapping[str, int]) -> Step:
    step = traced.step
    for module, count in more.items():
        step = lengthen(step, module, count, traced.weight_counts)
    return step


def few_blocks(source: ModelSource) -> tuple[ModelSource, dict[str, int]]:
    """Return ``source`` with no more equal blocks than a pattern needs, and how many each module lacks.

    Blocks of which some may be frozen, or have an adapter alone, are not equal, and what is done or held for
    all parameters at once is no block's.
    """
    if not _has_equal_blocks(source.options):
        return source, {}
    entry = zoo_model(source.zoo) if source.zoo else None
    alike = None if source.kernels == COMPILED else equal_blocks(source.config)
    repeats = entry.repeats if entry else dict([alike]) if alike else {}
    sizes = {**entry.arguments, **source.sizes} if entry else source.config
    few = {size: FEWEST for size in repeats if sizes[size] > FEWEST}
    more = {repeats[size]: sizes[size] - FEWEST for size in few}
    if entry:
        return replace(source, sizes={**source.sizes, **few}), more
    config = source.config
    for size, count in few.items():
        config = with_blocks(config, size, count)
    return replace(source, config=config), more


def _names_blocks(options: WorkloadOptions) -> bool:
    """Whether a layer of one block alone may be meant: its name has a number."""
    words = split_words(f"{options.adapter_targets},{options.base_targets}")
    return any(part.isdigit() for word in words for part in word.split("."))


def _kernels(
    source: ModelSource, program: Program, recorder: Recorder
) -> contextlib.AbstractContextManager[None]:
    """While this is open the model runs as the option ``kernels`` says."""
    if source.kernels != COMPILED:
        return contextlib.nullcontext()
    from experiments.profiling.compiled_parts import compile_parts

    return compile_parts(program.model.module, recorder)


def _has_equal_blocks(options: WorkloadOptions) -> bool:
    partly = bool(options.frozen) or _names_blocks(options)
    joined = options.update != "single" or options.autocast != "none"
    return not partly and not joined


def with_state_bytes(step: Step) -> Step:
    """Return ``step`` with the bytes of its optimizer's state, where those do not follow from its type."""
    optimizer = step.facts["optimizer"]
    if optimizer is None or optimizer in OPTIMIZER_MOMENTS:
        return step
    kept = step.tensors.bytes[step.tensors.kind == KINDS.index("optimizer_state")]
    return replace(step, facts={**step.facts, "optimizer_bytes": int(kept.sum())})


def _drop_detaches(module: fx.GraphModule) -> None:
    for node in module.graph.nodes:
        if node.target is torch.ops.aten.detach.default:
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)
    module.recompile()


def _facts(source: ModelSource, program: Program, lowering: Lowering) -> dict[str, Any]:
    options, geometry = program.options, program.options.geometry
    targets = [row["target"] for row in lowering.rows]
    return {
        "parameters": sum(program.weight_counts.values()),
        "batch": geometry.batch,
        "sequence": geometry.sequence or None,
        "image": geometry.image or None,
        "tokens": geometry.batch * geometry.sequence or None,
        "dtype": options.dtype,
        "precision": options.precision if options.training else None,
        "optimizer": options.optimizer if options.training else None,
        "training": options.training,
        "attention": attention_backend(targets),
        "dropout": source.draws_dropout,
        "model_flops": lowering.model_flops,
        "torch": torch.__version__,
        **({"kernels": COMPILED} if source.kernels == COMPILED else {}),
        **_tuning_facts(source, program),
        **({"micro_batches": source.micro_batches} if source.micro_batches > 1 else {}),
        **({"paged_from": program.optimizer.paged_from} if program.optimizer.paged_from else {}),
        **program.model.facts,
    }


def _tuning_facts(source: ModelSource, program: Program) -> dict[str, Any]:
    """Return what fine-tuning changes, and how many parameters it trains where those are not all."""
    frozen = {"trained_parameters": program.trained_parameters} if program.frozen else {}
    return {**frozen, **source.options.changes}


def attention_backend(targets: list[str]) -> str:
    """``flash``, ``efficient`` or ``cudnn`` by the fused op that was traced.

    ``math`` for a softmax, else ``none``.
    """
    fused = [target for target in targets if "_scaled_dot_product_" in target]
    for name in ("flash", "efficient", "cudnn"):
        if any(name in target for target in fused):
            return name
    return (
        "math" if any("softmax" in target and "log_softmax" not in target for target in targets) else "none"
    )
