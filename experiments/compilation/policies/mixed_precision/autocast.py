"""Which op runs in which type.

torch's own autocast lists (ATen/autocast_mode.h of torch 2.13), by op, as data.

LOW ops cast what they read to the low type, FULL ops to float32, WIDEST ops to the widest type that they
read; all others take what comes. The list for GPUs keeps reductions, norms, softmax and losses in float32, as
Micikevicius et al. (ICLR 2018, section 3.3) ask for; the list for CPUs lets softmax and norms run in what
they are given. Of the CPU's list what no exported model of ours can hold (decompositions, transforms) is left
out.
"""

from __future__ import annotations

from collections.abc import Mapping

LOW, FULL, WIDEST = "low", "full", "widest"

_PRODUCTS = """
conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d addmm addbmm baddbmm bmm
linalg_vecdot linear matmul mm prelu scaled_dot_product_attention
"""
_GPU_PRODUCTS = _PRODUCTS + "addmv addr convolution _convolution einsum mv"
_LOSSES = """
binary_cross_entropy_with_logits cdist cosine_embedding_loss hinge_embedding_loss huber_loss kl_div l1_loss
margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss nll_loss nll_loss2d poisson_nll_loss
prod smooth_l1_loss soft_margin_loss triplet_margin_loss
"""
#: Exported graphs hold these whole; torch divides them into listed ops before its list for GPUs is asked.
_DIVIDED = " cross_entropy_loss nll_loss_nd norm"
_GPU_FULL = (
    _LOSSES
    + _DIVIDED
    + """
acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow softplus layer_norm
native_layer_norm rms_norm group_norm cosine_similarity dist pdist renorm logsumexp upsample_nearest1d
upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d upsample_trilinear3d
upsample_bicubic2d softmax log_softmax cumprod cumsum linalg_vector_norm linalg_matrix_norm sum
"""
)
_CPU_FULL = (
    _LOSSES
    + """
adaptive_avg_pool3d adaptive_max_pool3d avg_pool3d binary_cross_entropy cross_entropy_loss grid_sampler
max_pool3d nanquantile quantile reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d
replication_pad3d trace
"""
)


def _table(low: str, full: str, widest: str) -> Mapping[str, str]:
    kinds = ((LOW, low), (FULL, full), (WIDEST, widest))
    return {op: kind for kind, names in kinds for op in names.split()}


#: Ops that refuse to mix types and that torch's lists leave out: eager autocast stops at them (a mixture of
#: experts whose experts give bfloat16 is added up in float32).
_UNLISTED = " index_add index_copy scatter masked_scatter"

LISTS: Mapping[str, Mapping[str, str]] = {
    "cuda": _table(
        _GPU_PRODUCTS,
        _GPU_FULL,
        "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add cat stack"
        + _UNLISTED,
    ),
    "cpu": _table(_PRODUCTS, _CPU_FULL, "cat stack index_put scatter_add" + _UNLISTED),
}


def rule(target: str, device: str) -> str:
    """Return what the list of ``device`` says of an ATen overload; "" where it says nothing."""
    name = target.split(".")[1] if target.startswith("aten.") else ""
    return LISTS[device].get(name, "")
