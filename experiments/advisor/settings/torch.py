"""The plan for torch 2.13: FSDP2, tensor parallelism, ``torch.distributed.pipelining`` and checkpointing.

Modules are called as in Transformers' Llama (``model.layers``, ``self_attn.q_proj`` ...).
"""

from __future__ import annotations

from collections.abc import Iterator

from experiments.advisor.settings.recipe import Recipe


def text(recipe: Recipe) -> str:
    """Return the lines of a training script that set the plan up."""
    parts = [_imports(recipe), _mesh(recipe), _tensor(recipe), _checkpoints(recipe), _states(recipe)]
    parts += [_pipeline(recipe), _loop(recipe)]
    return "\n\n".join("\n".join(part) for part in map(list, parts) if part)


def _is_replicated(recipe: Recipe) -> bool:
    return recipe.replicas > 1


def _shards(recipe: Recipe) -> bool:
    """FSDP2 divides; ZeRO 1 has an optimizer of its own, and one device nothing to divide."""
    return recipe.layout.zero >= 2 or (recipe.layout.host_optimizer and recipe.layout.zero != 1)


def _imports(recipe: Recipe) -> Iterator[str]:
    layout = recipe.layout
    yield f"# torchrun --nnodes {recipe.nodes} --nproc-per-node {recipe.per_node} train.py"
    yield "import torch"
    if recipe.checkpoints_blocks:
        yield "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import ("
        yield "    apply_activation_checkpointing, checkpoint_wrapper)"
    if recipe.devices > 1:
        yield "from torch.distributed.device_mesh import init_device_mesh"
    if _shards(recipe):
        offload = "CPUOffloadPolicy, " * layout.host_optimizer
        yield f"from torch.distributed.fsdp import {offload}MixedPrecisionPolicy, fully_shard"
    elif _is_replicated(recipe):
        if layout.zero:
            yield "from torch.distributed.optim import ZeroRedundancyOptimizer"
        yield "from torch.nn.parallel import DistributedDataParallel"
    if layout.pipeline > 1:
        yield f"from torch.distributed.pipelining import PipelineStage, {_schedule(recipe)}"
    if layout.tensor > 1:
        sequence = "PrepareModuleInput, " * layout.sequence
        ending = ", SequenceParallel" * layout.sequence
        names = f"ColwiseParallel, {sequence}RowwiseParallel{ending}, parallelize_module"
        yield "from torch.distributed.tensor import Replicate, Shard"
        yield f"from torch.distributed.tensor.parallel import (\n    {names})"
    if recipe.saves_operators:
        yield "from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts"


def _mesh(recipe: Recipe) -> Iterator[str]:
    if recipe.devices == 1:
        return
    layout = recipe.layout
    sizes = {"pipeline": layout.pipeline, "data": recipe.replicas}
    sizes |= {"context": layout.context, "tensor": layout.tensor}
    kept = {name: size for name, size in sizes.items() if size > 1 or name == "data"}
    shape, names = tuple(kept.values()), tuple(kept)
    yield f'mesh = init_device_mesh("cuda", {shape!r}, mesh_dim_names={names!r})'.replace("'", '"')


def _tensor(recipe: Recipe) -> Iterator[str]:
    layout = recipe.layout
    if layout.tensor == 1:
        return
    output = "output_layouts=Shard(1)" if layout.sequence else ""
    columns = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
    yield "split = {"
    yield from (f'    "{name}": ColwiseParallel(),' for name in columns)
    yield from (f'    "{name}": RowwiseParallel({output}),' for name in ("self_attn.o_proj", "mlp.down_proj"))
    if layout.sequence:
        yield '    "input_layernorm": SequenceParallel(), "post_attention_layernorm": SequenceParallel(),'
        yield '    "self_attn": PrepareModuleInput('
        yield '        input_kwarg_layouts={"hidden_states": Shard(1)},'
        yield '        desired_input_kwarg_layouts={"hidden_states": Replicate()}),'
        yield '    "mlp": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),'
    yield "}"
    yield "for block in model.layers:"
    yield '    parallelize_module(block, mesh["tensor"], split)'


def _checkpoints(recipe: Recipe) -> Iterator[str]:
    if not recipe.checkpoints_blocks:
        return
    wrapped = "checkpoint_wrapper"
    if recipe.saves_operators:
        wrapped = "lambda block: checkpoint_wrapper(block, context_fn=keep_operators)"
        yield from SAVED_OPERATORS
    yield "kind = type(model.layers[0])"
    yield "apply_activation_checkpointing("
    yield f"    model, checkpoint_wrapper_fn={wrapped},"
    yield "    check_fn=lambda module: isinstance(module, kind))"


#: Attention and the first, third, fifth ... product of a block are kept, the rest is computed again.
SAVED_OPERATORS = (
    "aten = torch.ops.aten",
    "attention = {aten._scaled_dot_product_flash_attention.default,",
    "             aten._scaled_dot_product_efficient_attention.default}",
    "",
    "",
    "def keep_operators():",
    "    products = {False: 0, True: 0}",
    "",
    "    def policy(context, operator, *arguments, **named):",
    "        keep = operator in attention",
    "        if operator is aten.mm.default:",
    "            products[context.is_recompute] += 1",
    "            keep = products[context.is_recompute] % 2 == 1",
    "        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE",
    "",
    "    return create_selective_checkpoint_contexts(policy)",
    "",
)


def _states(recipe: Recipe) -> Iterator[str]:
    layout = recipe.layout
    if _shards(recipe):
        yield from _write_sharding(recipe)
    elif _is_replicated(recipe):
        group = 'process_group=mesh.get_group("data")'
        yield f"model = DistributedDataParallel(model, {group}, gradient_as_bucket_view=True)"
        if layout.zero:
            yield "optimizer = ZeroRedundancyOptimizer("
            yield f"    model.parameters(), optimizer_class={_optimizer(recipe)}, lr=learning_rate,"
            yield f"    {group})"


def _optimizer(recipe: Recipe) -> str:
    names = {"adam": "torch.optim.Adam", "sgd": "torch.optim.SGD", "momentum": "torch.optim.SGD"}
    return names.get(str(recipe.options.optimizer), "torch.optim.AdamW")


def _write_sharding(recipe: Recipe) -> Iterator[str]:
    """With ZeRO 2 weights stay whole between passes, so that they are not gathered a second time."""
    layout = recipe.layout
    reduce = "torch.float32" if recipe.reduces_in_float32 else f"torch.{recipe.options.dtype}"
    precision = f"MixedPrecisionPolicy(param_dtype=torch.{recipe.options.dtype}, reduce_dtype={reduce})"
    yield "sharding = dict("
    if recipe.devices > 1:
        yield '    mesh=mesh["data"],'
    yield f"    mp_policy={precision},"
    if layout.host_optimizer:
        yield "    offload_policy=CPUOffloadPolicy(),"
    yield f"    reshard_after_forward={layout.zero == 3},"
    yield ")"
    yield "for block in model.layers:"
    yield "    fully_shard(block, **sharding)"
    yield "fully_shard(model, **sharding)"


def _schedule(recipe: Recipe) -> str:
    return "ScheduleInterleaved1F1B" if recipe.layout.interleaved > 1 else "Schedule1F1B"


def _pipeline(recipe: Recipe) -> Iterator[str]:
    layout = recipe.layout
    if layout.pipeline == 1:
        return
    stages = layout.pipeline * layout.interleaved
    yield f"blocks = {_blocks(recipe.blocks_of_chunks)}  # of each stage, in the model's order"
    yield 'rank, group = mesh.get_local_rank("pipeline"), mesh.get_group("pipeline")'
    yield f"own = range(rank, {stages}, {layout.pipeline})"
    yield "# chunks[i] has the blocks of stage i, the first the embedding too, the last the head"
    yield f"stages = [PipelineStage(chunks[i], i, {stages}, device, group=group) for i in own]"
    given = "stages" if layout.interleaved > 1 else "stages[0]"
    yield f"schedule = {_schedule(recipe)}({given}, n_microbatches={recipe.micro_batches}, loss_fn=loss)"


def _blocks(counts: list[int]) -> str:
    """``[2] * 8`` where all are equal."""
    return f"[{counts[0]}] * {len(counts)}" if len(set(counts)) == 1 else repr(counts)


def _loop(recipe: Recipe) -> Iterator[str]:
    if recipe.devices == 1 and not recipe.checkpoints_blocks:
        yield "# nothing to set up: the step runs as it is"
    sizes = f"{recipe.replicas} replicas x {recipe.micro_batches} micro-batches x {recipe.layout.micro_batch}"
    if recipe.devices > 1:
        yield f"# batch {recipe.options.batch} = {sizes} samples, added up before the optimizer's step"


def notes(recipe: Recipe) -> tuple[str, ...]:
    layout = recipe.layout
    found = []
    if layout.expert > 1:
        found.append("Experts divided among devices have no call in torch itself.")
    if layout.context > 1:
        found.append("Sequences are divided by torch.distributed.tensor.experimental.context_parallel.")
    if layout.host_optimizer and _shards(recipe):
        found.append("CPUOffloadPolicy keeps the weights on the host too; the plan keeps them on the device.")
    elif layout.host_optimizer:
        found.append("An optimizer on the host under ZeRO 1 has no call in torch itself.")
    if recipe.layout.recompute == "selective":
        found.append("Fused attention already computes its core again: nothing is set for it.")
    return (*found, *recipe.others)
