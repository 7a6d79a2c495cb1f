"""Which operators of an exported graph can be built: the list that readers hold a file to, before torch is
loaded.

``experiments.models`` has the functions themselves; tests hold the two to be the same list.
"""

from __future__ import annotations

_ONNX = """
                            Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh Attention AveragePool
    BatchNormalization     Cast CastLike     Ceil Celu Clip Concat Constant ConstantOfShape Conv ConvTranspose
    Cos Cosh CumSum     DepthToSpace Div Dropout Einsum     Elu Equal Erf Exp Expand Flatten Floor Gather
    GatherElements GatherND     Gelu Gemm GlobalAveragePool GlobalMaxPool     Greater GreaterOrEqual
    GroupNormalization HardSigmoid     HardSwish Identity InstanceNormalization IsInf IsNaN LRN
    LayerNormalization LeakyRelu Less LessOrEqual     Log LogSoftmax LpNormalization MatMul Max MaxPool Mean
    Min Mish Mod     Mul Neg Not OneHot Or PRelu Pad     Pow RMSNormalization Range Reciprocal ReduceL1
    ReduceL2 ReduceLogSum     ReduceLogSumExp ReduceMax     ReduceMean ReduceMin ReduceProd ReduceSum
    ReduceSumSquare Relu Reshape Resize     RotaryEmbedding Round     ScatterElements ScatterND Selu Shape
    Sigmoid Sign Sin Sinh Size Slice Softmax Softplus     Softsign     SpaceToDepth Split Sqrt Squeeze Sub Sum
    Swish Tan Tanh ThresholdedRelu Tile TopK Transpose Trilu     Unsqueeze Upsample Where Xor
"""

#: Operators of ONNX's own domain. Left out: loops and branches, sequences, strings, results whose shape
#: depends on values, integer-quantized arithmetic, and recurrent networks.
ONNX_OPERATORS = frozenset(_ONNX.split())

_ATEN = """
abs absolute acos acosh adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d
adaptive_max_pool2d add addbmm addcdiv addcmul addmm addmv alias all amax amin any arange argmax argmin
as_strided asin asinh atan atan2 atanh avg_pool1d avg_pool2d avg_pool3d baddbmm batch_norm bitwise_and
bitwise_not bitwise_or bitwise_xor bmm broadcast_to bucketize cat ceil celu channel_shuffle chunk clamp
clamp_max clamp_min clone concat constant_pad_nd contiguous conv1d conv2d conv3d conv_transpose1d
conv_transpose2d conv_transpose3d convolution copy cos cosh cross_entropy_loss cumprod cumsum detach diagonal
diff div dropout einsum elu embedding embedding_bag empty empty_like eq erf erfc exp exp2 expand expand_as
expm1 eye feature_dropout fill flatten flip floor floor_divide fmod frac full full_like gather ge gelu glu
grid_sampler group_norm gt hardshrink hardsigmoid hardswish hardtanh huber_loss index index_add index_copy
index_fill index_put index_select instance_norm isfinite isinf isnan l1_loss layer_norm le leaky_relu lerp
lift_fresh lift_fresh_copy linalg_vector_norm linear linspace log log10 log1p log2 log_sigmoid log_softmax
logaddexp logical_and logical_not logical_or logical_xor logsumexp lt masked_fill masked_scatter matmul max
max_pool1d max_pool2d max_pool2d_with_indices max_pool3d maximum mean min minimum mish mm movedim mse_loss mul
mv nan_to_num narrow native_batch_norm native_dropout native_group_norm native_layer_norm ne neg new_empty
new_full new_ones new_zeros nll_loss nll_loss_forward nll_loss_nd norm numel ones ones_like outer pad permute
pixel_shuffle pixel_unshuffle pow prelu prod reciprocal reflection_pad1d reflection_pad2d relu relu6 remainder
repeat repeat_interleave replication_pad1d replication_pad2d reshape reshape_as rms_norm roll round rsqrt rsub
scalar_tensor scaled_dot_product_attention scatter scatter_add scatter_reduce searchsorted select
select_scatter selu sigmoid sign silu sin sinh slice slice_scatter softmax softplus softshrink sort split
split_with_sizes sqrt square squeeze stack std sub sum swapaxes sym_numel sym_size t tan tanh threshold tile
to topk transpose tril triu trunc type_as unbind unflatten unfold unsafe_chunk unsafe_split unsqueeze
upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d
upsample_trilinear3d var var_mean view view_as where xlogy zero zeros zeros_like _adaptive_avg_pool2d
_convolution _fused_rms_norm _log_softmax _native_batch_norm_legit _native_batch_norm_legit_functional
_native_batch_norm_legit_no_training _safe_softmax _scaled_dot_product_flash_attention_for_cpu _softmax
_to_copy _unsafe_index _unsafe_view _upsample_bicubic2d_aa _upsample_bilinear2d_aa __and__ __or__ __xor__
_grouped_mm
"""
_IN_PLACE = """
abs add addcdiv addcmul addmm baddbmm bitwise_and bitwise_not bitwise_or celu clamp clamp_max clamp_min copy
cos detach div dropout elu erf exp fill floor ge gelu gt hardsigmoid hardswish hardtanh index_add index_copy
index_fill index_put le leaky_relu lerp log logical_and logical_not logical_or lt masked_fill masked_scatter
mish mul neg pow reciprocal relu relu6 remainder round rsqrt scatter scatter_add scatter_reduce selu sigmoid
sign silu sin sqrt squeeze sub tanh threshold transpose tril triu unsqueeze zero t
"""

#: Names under ``torch.ops.aten`` that an exported program may call: computation on its arguments and nothing
#: else. Left out on purpose: what reads files (``from_file``), prints, draws at random, replaces a tensor's
#: storage, or whose result's shape depends on values.
ATEN_OPERATORS = frozenset(_ATEN.split()) | frozenset(f"{name}_" for name in _IN_PLACE.split())

#: Arithmetic on sizes, by the name an archive gives it.
SIZE_ARITHMETIC = frozenset(
    f"{module}.{name}"
    for module, names in (
        ("_operator", "add sub mul floordiv truediv mod neg eq ne lt le gt ge and_ or_ not_"),
        ("math", "ceil floor trunc"),
        ("torch", "sym_max sym_min sym_not sym_float sym_int sym_ite"),
    )
    for name in names.split()
)

#: Checks on shapes that an export leaves behind; without a result they are skipped.
ASSERTIONS = frozenset(
    f"torch.ops.aten.{name}"
    for name in (
        "_assert_tensor_metadata.default",
        "_assert_scalar.default",
        "_assert_async.msg",
        "sym_constrain_range.default",
        "sym_constrain_range_for_size.default",
    )
)

#: A buffer's new value, which a program without in-place operations gives back, written where it came from.
UPDATE = "update"
