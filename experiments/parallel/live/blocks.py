"""Blocks of transformers that can be cut among devices, by their structure, and how torch cuts them.

Queries, keys, values and what expands are cut by columns, what follows them by rows (Shoeybi et al.,
"Megatron-LM", 2019, section 3), so that a block sums its output twice forward and the gradients of its inputs
twice backward. A block is known by the names of all its parts that have parameters: the zoo's, and those of
``transformers``' GPT-2 and of its Llama and whatever is built alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import (
    DTensor,
    Placement,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
)

from experiments.core.errors import BadInput


@dataclass(frozen=True)
class BlockLayout:
    """Names of a block's parts.

    - ``norms``: they are whole on every device.
    - ``attention``: the part that reads ``argument`` (``""``: its first).
    - ``makers``: of queries, keys and values, inside it; one that is alone makes all three, one behind the
      other. ``project`` follows them.
    - ``counts``: attributes of the attention that count heads or columns of heads on a device.
    - ``feed``: the part whose input all of ``expand`` read; ``""`` where there is one and reads its own.
    - ``contract``: follows ``expand``.
    """

    norms: tuple[str, ...]
    attention: str
    makers: tuple[str, ...]
    project: str
    counts: tuple[str, ...]
    expand: tuple[str, ...]
    contract: str
    feed: str = ""
    argument: str = ""

    @property
    def inside(self) -> tuple[str, ...]:
        """The paths of the attention's products."""
        return tuple(f"{self.attention}.{name}" for name in (*self.makers, self.project))

    @property
    def parts(self) -> frozenset[str]:
        """Every part that has parameters."""
        return frozenset((*self.norms, *self.inside, *self.expand, self.contract))


LAYOUTS = (
    BlockLayout(("norm1", "norm2"), "attention", ("qkv",), "project", ("heads",), ("expand",), "contract"),
    BlockLayout(
        ("norm1", "norm2"),
        "attention",
        ("query", "key", "value"),
        "project",
        ("heads",),
        ("feed.0",),
        "feed.2",
    ),
    BlockLayout(
        ("ln_1", "ln_2"),
        "attn",
        ("c_attn",),
        "c_proj",
        ("num_heads", "split_size"),
        ("mlp.c_fc",),
        "mlp.c_proj",
    ),
    BlockLayout(
        ("input_layernorm", "post_attention_layernorm"),
        "self_attn",
        ("q_proj", "k_proj", "v_proj"),
        "o_proj",
        (),
        ("mlp.gate_proj", "mlp.up_proj"),
        "mlp.down_proj",
        feed="mlp",
        argument="hidden_states",
    ),
)


def layout_of(block: nn.Module) -> BlockLayout | None:
    """Return the layout whose parts are all that has parameters in ``block``; ``None`` for another one."""
    parts = {name.rpartition(".")[0] for name, _ in block.named_parameters()}
    return next((layout for layout in LAYOUTS if layout.parts == parts), None)


def divide_heads(path: str, attention: Any, layout: BlockLayout, ranks: int) -> None:
    """Let the attention count the heads of one device; ``BadInput`` where they do not divide."""
    for heads in _heads(attention, layout):
        if heads % ranks:
            raise BadInput(f"{heads} heads over {ranks} devices", path, "a divisor of the heads")
    for name in layout.counts:
        setattr(attention, name, getattr(attention, name) // ranks)


def _heads(attention: Any, layout: BlockLayout) -> list[int]:
    """How many there are: as it counts them, or as many as its products have columns for."""
    if layout.counts:
        return [getattr(attention, layout.counts[0])]
    return [getattr(attention, name).out_features // attention.head_dim for name in layout.makers]


def columns_along(matrix: nn.Module, parameter: str) -> int:
    """Return the dimension of a product's weight or bias along which its output's columns lie."""
    return 1 if parameter == "weight" and not isinstance(matrix, nn.Linear) else 0


def styles(block: nn.Module, layout: BlockLayout, whole: Placement) -> dict[str, ParallelStyle]:
    """How each part is cut, where ``whole`` says how tensors are laid out between blocks."""
    found: dict[str, ParallelStyle] = dict(_norms(layout, whole))
    found[layout.attention] = _gathered(whole, layout.argument)
    for name in layout.makers:
        path = f"{layout.attention}.{name}"
        found[path] = _by_columns(block.get_submodule(path), Replicate())
    if layout.feed:
        found[layout.feed] = _gathered(whole, "")
    for path in layout.expand:
        found[path] = _by_columns(block.get_submodule(path), Replicate() if layout.feed else whole)
    for path in (layout.inside[-1], layout.contract):
        found[path] = _by_rows(block.get_submodule(path), whole)
    return found


def _norms(layout: BlockLayout, whole: Placement) -> dict[str, ParallelStyle]:
    """On pieces of a sequence a norm's gradients are parts of sums; on whole sequences nothing is
    to be done.
    """
    if whole == Replicate():
        return {}
    return {name: SequenceParallel(use_local_output=True) for name in layout.norms}


def _gathered(whole: Placement, argument: str) -> ParallelStyle:
    """Gathered once for all that reads it, and its gradients summed once."""
    if argument:
        return PrepareModuleInput(
            input_kwarg_layouts={argument: whole},
            desired_input_kwarg_layouts={argument: Replicate()},
            use_local_output=False,
        )
    return PrepareModuleInput(input_layouts=whole, desired_input_layouts=Replicate(), use_local_output=False)


def _by_columns(matrix: nn.Module, given: Placement) -> ParallelStyle:
    if isinstance(matrix, nn.Linear):
        return ColwiseParallel(input_layouts=given)
    return _Transposed(Shard(1), Shard(0), given, Replicate(), Shard(-1))


def _by_rows(matrix: nn.Module, whole: Placement) -> ParallelStyle:
    if isinstance(matrix, nn.Linear):
        return RowwiseParallel(output_layouts=whole)
    return _Transposed(Shard(0), Replicate(), Shard(-1), Shard(-1), whole)


class _Transposed(ParallelStyle):
    """A product whose weight is [inputs, outputs], as GPT-2's ``Conv1D``, which torch's styles do not know.

    ``weight`` and ``bias`` are cut as said; what is ``given`` is laid out as ``wanted`` before, the output as
    ``made`` behind.
    """

    def __init__(
        self, weight: Placement, bias: Placement, given: Placement, wanted: Placement, made: Placement
    ) -> None:
        super().__init__()
        self._cut = {"weight": weight, "bias": bias}
        self._given, self._wanted, self._made = given, wanted, made

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return distribute_module(module, device_mesh, self._partition, self._before, self._behind)

    def _partition(self, name: str, module: nn.Module, mesh: DeviceMesh) -> None:
        for own, parameter in list(module.named_parameters(recurse=False)):
            cut = distribute_tensor(parameter, mesh, [self._cut[own]], src_data_rank=self.src_data_rank)
            module.register_parameter(own, nn.Parameter(cut, requires_grad=parameter.requires_grad))

    def _before(self, module: nn.Module, inputs: tuple[Any, ...], mesh: DeviceMesh) -> Any:
        x = inputs[0]
        if not isinstance(x, DTensor):
            x = DTensor.from_local(x, mesh, [self._given], run_check=False)
        return x.redistribute(placements=[self._wanted])

    def _behind(self, module: nn.Module, output: DTensor, mesh: DeviceMesh) -> Any:
        return output.redistribute(placements=[self._made]).to_local()
