"""Parts of a model as ``torch.compile`` leaves them: ahead-of-time autograd cuts a part's forward and
backward pass into two graphs with Inductor's decompositions, joint-graph passes and minimum cut.

Compiled are each block that a list of the model repeats, and the loss, each by itself (torchtune,
torchtitan); what lies between stays eager. Where no list repeats a block, the model is compiled as a whole.
Blocks that run the same ops on tensors of the same shapes share one pair of graphs.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._functorch.aot_autograd import aot_function
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing, set_original_aten_op
from torch.fx.traceback import preserve_node_meta
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from experiments.models.model import Objective
from experiments.profiling.recorder import Recorder

#: Matrices of a module that is worth a graph of its own.
BLOCK_MATRICES = 2
Signature = tuple[object, ...]


@contextlib.contextmanager
def compile_parts(module: nn.Module, recorder: Recorder) -> Iterator[None]:
    """Let ``module`` run its parts by compiled graphs, whose ops ``recorder`` labels."""
    compiler = _Compiler(recorder)
    with contextlib.ExitStack() as stack:
        body = module.body if isinstance(module, Objective) else module
        for part in repeated_blocks(body) or [body]:
            stack.enter_context(_replace(part, "forward", compiler.compile(part.forward, part)))
        if isinstance(module, Objective):
            stack.enter_context(_replace(module, "_loss", compiler.compile(module._loss)))
        yield


def repeated_blocks(module: nn.Module) -> list[nn.Module]:
    """Modules of a list that hold two matrices or more and have a sibling of their class; outermost ones."""
    children = dict(module.named_children())
    kinds = Counter(type(child) for name, child in children.items() if name.isdigit())
    found = []
    for name, child in children.items():
        matrices = sum(value.ndim > 1 for value in child.parameters())
        if name.isdigit() and kinds[type(child)] > 1 and matrices >= BLOCK_MATRICES:
            found.append(child)
        else:
            found += repeated_blocks(child)
    return found


@contextlib.contextmanager
def _replace(holder: nn.Module, name: str, value: Callable[..., Any]) -> Iterator[None]:
    """Let ``holder`` have ``value`` as its own attribute ``name`` meanwhile."""
    own = holder.__dict__.get(name)
    holder.__dict__[name] = value
    try:
        yield
    finally:
        if own is None:
            del holder.__dict__[name]
        else:
            holder.__dict__[name] = own


class _Compiler:
    """Compiles functions when they are first called, and remembers graphs by what a call does."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._graphs: dict[Signature, Callable[..., Any]] = {}

    def compile(self, function: Callable[..., Any], module: nn.Module | None = None) -> Callable[..., Any]:
        """``function`` by compiled graphs; parameters and buffers of ``module`` are arguments of them."""

        def plain(values: dict[str, Tensor], arguments: Any, named: Any) -> Any:
            with _reparametrize_module(module, values) if module else contextlib.nullcontext():
                return function(*arguments, **named)

        def call(*arguments: Any, **named: Any) -> Any:
            values = _own_tensors(module) if module else {}
            with self._recorder.pause(), disable_proxy_modes_tracing():
                key = _signature(plain, values, arguments, named)
                if key not in self._graphs:
                    self._graphs[key] = self._compile(plain)
                    with preserve_node_meta():
                        self._graphs[key](values, arguments, named)
            return self._graphs[key](values, arguments, named)

        return call

    def _compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        from torch._inductor.compile_fx import partition_fn
        from torch._inductor.decomposition import select_decomp_table

        compiled: Callable[..., Any] = aot_function(
            function,
            fw_compiler=self._label,
            bw_compiler=self._label,
            inference_compiler=self._label,
            partition_fn=partition_fn,
            decompositions=select_decomp_table(),
            keep_inference_input_mutations=True,
        )
        return compiled

    def _label(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """The graph ``gm`` as it stands, run op by op, so that a trace sees its ops and what they were."""

        def run(arguments: list[Any]) -> Any:
            with self._recorder.compiled_graph(), preserve_node_meta():
                return _Tracing(gm).run(*arguments)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run


class _Tracing(fx.Interpreter):
    """Runs a graph so that a trace of the run knows what its ops were before they were decomposed."""

    def run_node(self, node: fx.Node) -> Any:
        original = node.meta.get("original_aten")
        with set_original_aten_op(original) if original else contextlib.nullcontext():
            return super().run_node(node)


def _own_tensors(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


class _Listing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Lists the ops that run, with all their arguments; tensors by type and shape."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rows: list[object] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.rows.append((str(func), *map(_describe, pytree.tree_leaves((args, kwargs)))))
        return func(*args, **(kwargs or {}))


def _describe(value: Any) -> str:
    """A value as text; of a tensor what a compiled graph depends on."""
    if not isinstance(value, Tensor):
        return repr(value)
    return f"{value.dtype} {tuple(value.shape)} {value.stride()} {value.requires_grad}"


def _signature(
    function: Callable[..., Any], values: dict[str, Tensor], arguments: Any, named: Any
) -> Signature:
    """What a call does: its arguments, and its ops in order."""
    given = [*values.items(), *pytree.tree_leaves((arguments, named))]
    listing = _Listing()
    with torch.no_grad(), listing:
        function(values, arguments, named)
    described = (_describe(leaf) for leaf in pytree.tree_leaves(given))
    return (torch.is_grad_enabled(), *described, *listing.rows)
