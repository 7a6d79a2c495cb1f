"""``triton``: ops of the exported graph carried out by the kernels of ``live.triton_kernels``.

On CUDA the kernels are compiled and a matmul's blocks chosen by timing before the first call. Elsewhere they
run under Triton's interpreter, in a child process: right or wrong can be seen, and the time of a call means
nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from experiments.compilation.live.backends.base import Compiled, Task, clock_compilation, unsupported_backend
from experiments.compilation.live.triton_kernels.interpreter import NoTriton, interpreter, is_installed

Launch = Callable[..., Tensor]
#: The interpreter reads some ten million weights a second; a verification is half a dozen calls.
MOST_WEIGHTS = 150_000_000
PRODUCTS = ("linear", "matmul", "tiled_linear", "tiled_matmul")
INTERPRETED = "Triton's interpreter carried the kernels out on a CPU: its time says nothing of theirs"


def build(task: Task, options: Mapping[str, Any]) -> Compiled:
    kernels: Mapping[str, str] = options["kernels"]
    if not is_installed():
        raise unsupported_backend("Triton is not installed (CUDA builds of torch bring it)", "triton")
    interpreted = task.device != "cuda"
    if interpreted:
        _refuse_large(task.origin, kernels)
    with clock_compilation() as clock:
        launch = _interpreted_kernel if interpreted else _launched_kernel
        module = _replace_nodes(copy.deepcopy(task.origin), kernels, launch, options.get("blocks", {}))
        _call_once(module, task)
    report = {"kernels": dict(kernels), "refused": dict(options["refused"]), "interpreted": interpreted}
    metrics = {"rewrites": float(len(kernels))}
    untimed = INTERPRETED if interpreted else ""
    return Compiled(module, clock.wall, clock.cpu, metrics, report, untimed=untimed)


def _call_once(module: fx.GraphModule, task: Task) -> None:
    """The first call compiles the kernels, or shows that the interpreter runs."""
    try:
        with torch.no_grad():
            module(*task.inputs)
    except NoTriton as error:
        raise unsupported_backend(str(error), "triton") from error


def _refuse_large(origin: fx.GraphModule, kernels: Mapping[str, str]) -> None:
    """A model whose weights would keep the interpreter busy for more than minutes."""
    read = {
        source for node in origin.graph.nodes if node.name in kernels for source in _products(node, kernels)
    }
    weights = sum(value.numel() for node in read if isinstance(value := node.meta.get("val"), Tensor))
    if weights > MOST_WEIGHTS:
        raise unsupported_backend(
            f"{weights} elements are more than Triton's interpreter gets through ({MOST_WEIGHTS})", "triton"
        )


def _products(node: fx.Node, kernels: Mapping[str, str]) -> list[fx.Node]:
    """Return what a product reads."""
    if kernels[node.name] == "linear_gelu":
        return node.all_input_nodes[0].all_input_nodes
    return node.all_input_nodes if kernels[node.name] in PRODUCTS else []


def _replace_nodes(
    module: fx.GraphModule,
    kernels: Mapping[str, str],
    launch: Callable[[str], Launch],
    blocks: Mapping[str, Sequence[int]],
) -> fx.GraphModule:
    """Return the nodes named in ``kernels`` as calls of theirs, with their ``blocks`` where they
    have some.
    """
    for node in list(module.graph.nodes):
        if node.name in kernels:
            _replace(node, kernels[node.name], launch, blocks.get(node.name, ()))
    module.graph.lint()
    module.recompile()
    return module


def _replace(node: fx.Node, kernel: str, launch: Callable[[str], Launch], blocks: Sequence[int] = ()) -> None:
    absorbed = node.all_input_nodes[0] if kernel == "linear_gelu" else None
    arguments = (*_arguments(absorbed or node, kernel), *blocks)
    with node.graph.inserting_before(node):
        made = node.graph.call_function(launch(kernel), arguments)
    made.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    node.graph.erase_node(node)
    if absorbed is not None:
        absorbed.graph.erase_node(absorbed)


def _arguments(node: fx.Node, kernel: str) -> tuple[Any, ...]:
    """Return what the kernel reads of the op's arguments."""
    if kernel == "layer_norm":
        x, _, weight, bias, eps = _fill_arguments(node.args, (None, None, None, None, 1e-5))
        return (x, weight, bias, eps)
    if kernel.startswith("tiled"):
        return tuple(_fill_arguments(node.args, (None, None, None)))
    return node.args[:1] if kernel in ("softmax", "bias_gelu") else node.args


def _fill_arguments(given: Sequence[Any], defaults: Sequence[Any]) -> list[Any]:
    """Return the first arguments, defaults where the call has fewer."""
    return [*given, *defaults[len(given) :]][: len(defaults)]


def _interpreted_kernel(kernel: str) -> Launch:
    def call(*arguments: Any) -> Tensor:
        return interpreter()(kernel, *arguments)

    call.__name__ = kernel
    return call


def _launched_kernel(kernel: str) -> Launch:
    from experiments.compilation.live.triton_kernels import launch, tuning

    tuned: Mapping[str, Launch] = {
        "linear": tuning.linear,
        "linear_gelu": tuning.linear_gelu,
        "matmul": tuning.matmul,
    }
    return tuned.get(kernel) or launch.KERNELS[kernel]
