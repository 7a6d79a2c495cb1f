"""How ops are read as loops: every rule on shapes that can be worked out by hand."""

from __future__ import annotations

import pytest

from experiments.workloads.einsum import Operator
from tests.experiments.workloads.hand_steps import one_op, read_as

X, W, BUFFER = "input", "parameter", "buffer"


def dims(operator: Operator) -> list[tuple[str, ...]]:
    return [operand.dims for operand in operator.operands]


# --- products -------------------------------------------------------------------------------------


def test_a_linear_layer_sums_over_its_input_and_makes_its_columns() -> None:
    """Four samples of 3 values by a 5 x 3 weight with a bias of 5."""
    linear = one_op("addmm", (4, 5), (W, (5,)), (X, (4, 3)), (W, (5, 3)), batch=4)
    assert linear.kind == "einsum"
    assert linear.sizes == (("batch", 4), ("channel", 5), ("channel.in", 3))
    assert (linear.output, linear.contracted) == (("batch", "channel"), ("channel.in",))
    assert dims(linear) == [("batch", "channel.in"), ("channel", "channel.in"), ("channel",)]
    assert [operand.bytes for operand in linear.operands] == [48, 60, 20]
    assert [operand.parameter for operand in linear.operands] == [-1, 0, 1]
    assert linear.output_bytes == 80 and linear.flops == 1.0


def test_rows_of_a_language_model_are_samples_and_tokens() -> None:
    """Two samples of 6 tokens: the 12 rows are told apart, though the op sees one dimension."""
    linear = one_op("mm", (12, 5), (X, (12, 3)), (W, (5, 3)), batch=2, sequence=6)
    assert linear.output == ("batch", "sequence", "feedforward")
    assert linear.size == {"batch": 2, "sequence": 6, "feedforward": 5, "feedforward.in": 3}


def test_a_picture_laid_flat_is_summed_over_channels_and_pixels() -> None:
    """Pictures of 3 x 2 x 2 by a weight of 7 x 12: three loops are summed, and 12 is no dimension."""
    linear = one_op("mm", (4, 7), (X, (4, 3, 2, 2)), (W, (7, 12)), batch=4)
    assert linear.contracted == ("channel.in", "height", "width")
    assert dims(linear)[1] == ("channel", "channel.in", "height", "width")


def test_one_row_of_each_sample_is_a_sixth_of_what_is_there() -> None:
    """One of 6 tokens goes on; nothing says which, so the sequence is needed whole, and 1/6 of its bytes
    move.
    """
    pooler = one_op("mm", (2, 5), (X, (2, 6, 3)), (W, (5, 3)), batch=2, sequence=6)
    assert dims(pooler)[0] == ("batch", "", "feedforward.in")
    assert pooler.operands[0].bytes == 2 * 3 * 4
    assert pooler.output == ("batch", "feedforward")


def test_a_product_of_two_activations_is_divided_by_its_batch_alone() -> None:
    scores = one_op("bmm", (8, 6, 6), (X, (8, 6, 4)), (X, (8, 4, 6)), batch=8)
    assert scores.kind == "opaque"
    assert scores.divisible == ("batch",)
    assert dims(scores) == [("batch", "", ""), ("batch", "", "")]


def test_each_expert_has_a_product_of_its_own() -> None:
    """4 experts take 5 rows of 3 each, laid flat, and make 7: the expert walks rows, weight and result."""
    expand = one_op("bmm", (4, 5, 7), (X, (20, 3)), (W, (4, 3, 7)), batch=2, sequence=6)
    assert expand.sizes == (("experts", 4), ("capacity", 5), ("feedforward", 7), ("feedforward.in", 3))
    assert dims(expand) == [
        ("experts", "capacity", "feedforward.in"),
        ("experts", "feedforward.in", "feedforward"),
    ]
    assert expand.contracted == ("feedforward.in",)


def test_the_width_of_the_embedding_is_named_hidden_wherever_it_comes_back() -> None:
    """Words of width 8 go to 32 and back to 8: the second product's columns are hidden again."""
    tensors = {
        "words": (W, (50, 8)),
        "tokens": (X, (2, 6)),
        "a": ("activation", (2, 6, 8)),
        "w1": (W, (32, 8)),
        "b": ("activation", (12, 32)),
        "w2": (W, (8, 32)),
        "c": ("activation", (12, 8)),
    }
    ops = [("embedding", ["words", "tokens"], ["a"]), ("mm", ["a", "w1"], ["b"]), ("mm", ["b", "w2"], ["c"])]
    look_up, expand, contract = read_as(ops, tensors, batch=2, sequence=6)
    assert look_up.output == ("batch", "sequence", "hidden") and look_up.contracted == ("vocabulary",)
    assert (expand.output[-1], expand.contracted) == ("feedforward", ("hidden",))
    assert (contract.output[-1], contract.contracted) == ("hidden", ("feedforward",))
    assert [operand.source for operand in contract.operands] == [1, -1]


# --- pictures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "kernel", "result", "halo"),
    [
        (8, 3, 8, (("height", 2), ("width", 2))),  # stride 1
        (8, 3, 4, (("height", 1), ("width", 1))),  # stride 2: the windows overlap by one
        (8, 2, 4, ()),  # stride 2: they touch
        (8, 1, 4, ()),  # stride 2, every other pixel is not read
        (8, 7, 2, (("height", 3), ("width", 3))),  # stride 4
    ],
)
def test_the_halo_is_what_neighboring_windows_share(
    size: int, kernel: int, result: int, halo: tuple[tuple[str, int], ...]
) -> None:
    shapes = (X, (2, 3, size, size)), (W, (5, 3, kernel, kernel))
    assert one_op("convolution", (2, 5, result, result), *shapes, batch=2).halo == halo


def test_a_grouped_convolution_sums_over_nothing_that_can_be_divided() -> None:
    """6 channels in 3 groups: the weight has 2 of them, so a group's channels go with its results."""
    grouped = one_op("convolution", (2, 9, 4, 4), (X, (2, 6, 4, 4)), (W, (9, 2, 1, 1)), (W, (9,)), batch=2)
    assert grouped.contracted == ()
    assert dims(grouped) == [("batch", "channel", "height", "width"), ("channel",), ("channel",)]


def test_a_pool_of_all_pixels_is_a_sum_and_a_pool_of_windows_is_not() -> None:
    whole = one_op("adaptive_avg_pool2d", (2, 3, 1, 1), (X, (2, 3, 4, 4)), batch=2)
    assert (whole.kind, whole.output, whole.contracted) == (
        "reduce",
        ("batch", "channel"),
        ("height", "width"),
    )
    windows = one_op("max_pool2d_with_indices", (2, 3, 2, 2), (X, (2, 3, 4, 4)), batch=2)
    assert (windows.kind, windows.contracted) == ("pool", ())
    assert windows.size == {"batch": 2, "channel": 3, "height": 2, "width": 2}


def test_pictures_side_by_side_keep_their_channels_whole() -> None:
    """3 and 5 channels make 8: a half of the result comes from one of them or from both, so none is cut."""
    joined = one_op("cat", (2, 8, 4, 4), (X, (2, 3, 4, 4)), (X, (2, 5, 4, 4)), batch=2)
    assert (joined.kind, joined.whole, joined.divisible) == (
        "concatenation",
        ("channel",),
        ("batch", "height", "width"),
    )
    assert dims(joined) == [("batch", "", "height", "width")] * 2


# --- attention, experts -----------------------------------------------------------------------------


def test_attention_reads_its_own_queries_and_everybodys_keys() -> None:
    """2 samples, 3 heads of 4, 6 tokens; query, key and value are parts of one product of 36 columns."""
    tensors = {
        "x": (X, (12, 8)),
        "w": (W, (36, 8)),
        "qkv": ("activation", (12, 36)),
        "out": ("activation", (2, 3, 6, 4)),
    }
    ops = [
        ("mm", ["x", "w"], ["qkv"]),
        ("_scaled_dot_product_flash_attention_for_cpu", ["qkv"], ["out"]),
    ]
    product, attention = read_as(ops, tensors, batch=2, sequence=6)
    assert product.output == ("batch", "sequence", "heads"), "named by the reader, 36 as its maker has it"
    assert product.size["heads"] == 36 and attention.size["heads"] == 3
    assert attention.output == ("batch", "sequence", "heads", "head_size")
    rows = [("batch", place, "heads") for place in ("sequence", "keys", "keys")]
    assert dims(attention) == rows
    assert {operand.bytes for operand in attention.operands} == {12 * 36 * 4 / 3}
    assert attention.whole == ("keys", "head_size") and attention.contracted == ()


def test_experts_choose_rows_and_hand_them_back() -> None:
    """12 tokens, 4 experts of capacity 3: as many rows come back as there are tokens, and are told apart."""
    tensors = {
        "x": ("activation", (12, 8)),
        "tokens": (X, (12, 8)),
        "router": (W, (4, 8)),
        "scores": ("activation", (12, 4)),
        "best": ("activation", (4, 3)),
        "rows": ("activation", (12, 8)),
        "w": (W, (4, 8, 8)),
        "made": ("activation", (4, 3, 8)),
        "zeros": (X, (12, 8)),
        "sum": ("activation", (12, 8)),
    }
    ops = [
        ("mm", ["tokens", "router"], ["scores"]),
        ("topk", ["scores"], ["best"]),
        ("index", ["tokens", "best"], ["rows"]),
        ("bmm", ["rows", "w"], ["made"]),
        ("index_add", ["zeros", "best", "made"], ["sum"]),
    ]
    _, choice, dispatch, product, combination = read_as(ops, tensors, batch=12)
    assert (choice.kind, choice.output) == ("choice", ("experts", "capacity"))
    assert dims(choice) == [("capacity", "experts")], "a part of the batch fills a part of the capacity"
    assert dispatch.output == ("experts", "capacity", "channel")
    assert dims(dispatch)[0] == ("capacity", "channel")
    assert product.output[:2] == ("experts", "capacity")
    assert combination.contracted == ("experts",) and combination.output[0] == "batch"
    assert dims(combination)[2] == ("experts", "batch", "channel")


def test_a_choice_without_experts_is_opaque() -> None:
    """The 5 best of 9 values of each sample: no dimension of 2 but the batch itself."""
    best = one_op("topk", (2, 5), (X, (2, 9)), batch=2)
    assert best.kind == "opaque" and best.divisible == ("batch",)


def test_a_bag_of_words_sums_rows_of_its_table() -> None:
    """3 words of each of 4 samples make one row of 6."""
    bag = one_op("embedding_bag", (4, 6), (W, (100, 6)), (X, (4, 3)), batch=4)
    assert bag.output == ("batch", "channel") and bag.contracted == ("vocabulary",)
    assert dims(bag) == [("vocabulary", "channel"), ("batch", "")]


# --- norms, reductions, element-wise ----------------------------------------------------------------


def test_a_norm_needs_the_statistics_of_its_last_dimension() -> None:
    norm = one_op("native_layer_norm", (12, 8), (X, (12, 8)), (W, (8,)), (W, (8,)), batch=2, sequence=6)
    assert (norm.kind, norm.statistics) == ("normalization", ("feedforward",))
    assert dims(norm)[1:] == [("feedforward",)] * 2
    assert norm.divisible == ("batch", "sequence", "feedforward") and norm.contracted == ()


def test_the_words_of_a_softmax_are_a_vocabulary() -> None:
    """Behind the last product: its columns are words from here on, for the product too."""
    tensors = {
        "x": (X, (12, 8)),
        "w": (W, (50, 8)),
        "logits": ("activation", (12, 50)),
        "p": ("activation", (12, 50)),
        "y": (X, (12,)),
        "loss": ("activation", (1,)),
    }
    ops = [
        ("mm", ["x", "w"], ["logits"]),
        ("_log_softmax", ["logits"], ["p"]),
        ("nll_loss_forward", ["p", "y"], ["loss"]),
    ]
    product, softmax, loss = read_as(ops, tensors, batch=2, sequence=6)
    assert product.output[-1] == "vocabulary" and softmax.statistics == ("vocabulary",)
    assert loss.output == () and loss.contracted == ("batch", "sequence", "vocabulary")
    assert dims(loss) == [("batch", "sequence", "vocabulary"), ("batch", "sequence")]


def test_statistics_of_a_batch_are_each_replicas_own() -> None:
    names = ((X, (4, 3, 2, 2)), (W, (3,)), (W, (3,)), (BUFFER, (3,)), (BUFFER, (3,)))
    norm = one_op("native_batch_norm", (4, 3, 2, 2), *names, batch=4)
    assert norm.statistics == () and norm.contracted == ()
    assert dims(norm) == [("batch", "channel", "height", "width"), *[("channel",)] * 4]
    assert [operand.parameter for operand in norm.operands] == [-1, 0, 1, -1, -1], "buffers are no parameters"


def test_a_mean_over_pixels_keeps_what_the_result_has() -> None:
    mean = one_op("mean", (4, 3), (X, (4, 3, 2, 5)), batch=4)
    assert (mean.kind, mean.output, mean.contracted) == ("reduce", ("batch", "channel"), ("height", "width"))


def test_a_mean_whose_axes_cannot_be_told_is_opaque() -> None:
    """(4, 3, 2) to (2, 3) keeps nothing in order: no guess is made."""
    assert one_op("mean", (2, 3), (X, (4, 3, 2, 5)), batch=4).kind == "opaque"


def test_a_bias_is_walked_by_the_dimensions_of_its_size_from_the_end() -> None:
    """A bias of 3 for the channels of pictures whose height is 3 too: the last that fits is taken."""
    added = one_op("add", (4, 6, 3, 2), (X, (4, 6, 3, 2)), (W, (3, 2)), batch=4)
    assert dims(added) == [("batch", "channel", "height", "width"), ("height", "width")]
    assert added.light and added.kind == "elementwise"


@pytest.mark.parametrize("name", ["cumsum", "sort", "flip", "roll"])
def test_ops_with_an_order_are_never_cut_along_it(name: str) -> None:
    """All have results of their operand's size, as element-wise ops do: they are told apart by name alone."""
    assert one_op(name, (4, 6), (X, (4, 6)), batch=4).divisible == ("batch",)
    assert one_op("relu", (4, 6), (X, (4, 6)), batch=4).divisible == ("batch", "channel")


def test_a_weight_read_twice_has_one_number_and_buffers_have_none() -> None:
    tensors = {
        "x": (X, (4, 6)),
        "w": (W, (6, 6)),
        "a": ("activation", (4, 6)),
        "b": ("activation", (4, 6)),
        "m": (BUFFER, (6,)),
        "c": ("activation", (4, 6)),
    }
    ops = [("mm", ["x", "w"], ["a"]), ("mm", ["a", "w"], ["b"]), ("mul", ["b", "m"], ["c"])]
    first, second, scaled = read_as(ops, tensors, batch=4)
    assert first.parameters[0].parameter == second.parameters[0].parameter == 0
    assert scaled.parameters == ()
    assert [operator.share for operator in (first, second, scaled)] == pytest.approx(
        [336 / 888, 336 / 888, 216 / 888]
    ), "no seconds are known, so layers' times are shared by the bytes that ops move"


def test_only_what_the_backward_pass_reads_is_stashed() -> None:
    """The second op changes ``a`` in place, backward reads it: it counts with the op that changed it last."""
    from experiments.workloads.aggregate import layer_graph
    from tests.experiments.workloads.hand_steps import step_of

    tensors = {
        "x": (X, (4, 6)),
        "w": (W, (6, 6)),
        "a": ("activation", (4, 6)),
        "b": ("activation", (4, 6)),
        "g": ("gradient", (4, 6)),
    }
    ops = [
        ("mm", ["x", "w"], ["a"]),
        ("relu", ["a"], ["a"]),
        ("mm", ["a", "w"], ["b"]),
        ("mm", ["a", "w"], ["g"]),
    ]
    phases = ("forward", "forward", "forward", "backward")
    einsums = layer_graph(step_of(ops, tensors, phases, batch=4)).einsums
    assert [operator.stash_bytes for operator in einsums] == [0, 96, 0]
