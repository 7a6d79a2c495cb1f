"""Kernels of compiled graphs, by Inductor's rule: small graphs that can be fused by hand."""

from __future__ import annotations

from experiments.profiling.fused_kernels import COLUMNS, LIBRARY, POINTWISE, ROWS, GraphOp, fuse

#: Tensors by letter; each is 8 bytes.
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SIZE = dict.fromkeys(range(100), 8)


def op(form: str, reads: str, makes: str, points: int = 64, results: int | None = None) -> GraphOp:
    inside, out = (tuple(LETTERS.index(letter) for letter in word) for word in (reads, makes))
    return GraphOp(form, points, points if results is None else results, inside, out)


def kernels(*ops: GraphOp, leaving: str = "") -> list[tuple[tuple[int, ...], str, str]]:
    """Of each kernel its ops, what it reads and what it writes."""
    found = fuse(ops, {LETTERS.index(letter) for letter in leaving}, SIZE)
    return [
        (k.ops, "".join(LETTERS[t] for t in k.reads), "".join(LETTERS[t] for t in k.writes)) for k in found
    ]


def test_a_chain_of_pointwise_ops_is_one_kernel_and_leaves_no_temporary():
    chain = (op(POINTWISE, "a", "b"), op(POINTWISE, "b", "c"), op(POINTWISE, "c", "d"))
    assert kernels(*chain) == [((0, 1, 2), "a", "d")]


def test_what_a_library_reads_is_in_memory_and_what_it_makes_too():
    ops = (op(POINTWISE, "a", "b"), op(LIBRARY, "bw", "c"), op(POINTWISE, "c", "d"), op(POINTWISE, "d", "e"))
    assert kernels(*ops) == [((0,), "a", "b"), ((1,), "bw", "c"), ((2, 3), "c", "e")]


def test_a_norm_reads_its_input_once_and_writes_its_output_and_its_statistics():
    # x -> sum of each row -> x scaled by it; the sum is kept for the backward pass.
    norm = (op(ROWS, "x", "s", 64, 8), op(POINTWISE, "s", "r", 8), op(POINTWISE, "xr", "y"))
    assert kernels(*norm, leaving="s") == [((0, 1, 2), "x", "sy")]
    assert kernels(*norm) == [((0, 1, 2), "x", "y")]


def test_what_two_products_share_is_computed_again_where_it_is_cheap():
    # b is read by two kernels of other sizes: both compute it from a.
    ops = (op(POINTWISE, "a", "b"), op(ROWS, "b", "c", 64, 8), op(COLUMNS, "b", "d", 64, 4))
    assert kernels(*ops) == [((0, 1), "a", "c"), ((0, 2), "a", "d")]


def test_what_reads_more_than_four_tensors_is_computed_once_for_two_readers():
    ops = (op(POINTWISE, "abcde", "f"), op(ROWS, "f", "g", 64, 8), op(COLUMNS, "f", "h", 64, 4))
    assert kernels(*ops) == [((0, 1), "abcde", "fg"), ((2,), "f", "h")]


def test_sums_of_columns_are_kernels_of_their_own_and_join_one_another():
    ops = (
        op(POINTWISE, "ax", "b"),
        op(LIBRARY, "bw", "c"),
        op(COLUMNS, "b", "d", 64, 8),
        op(POINTWISE, "bc", "e"),
        op(COLUMNS, "e", "f", 64, 8),
    )
    assert kernels(*ops) == [((0,), "ax", "b"), ((1,), "bw", "c"), ((2, 3, 4), "bc", "df")]


def test_no_kernel_waits_for_a_library_that_needs_it():
    # a -> b -> (library) -> c; d reads a and c: it shares a with b's kernel, but runs after the library.
    ops = (op(POINTWISE, "a", "b"), op(LIBRARY, "b", "c"), op(POINTWISE, "ac", "d"))
    assert [k[0] for k in kernels(*ops)] == [(0,), (1,), (2,)]


def test_kernels_of_other_sizes_stay_apart():
    ops = (op(ROWS, "a", "b", 64, 8), op(ROWS, "ab", "c", 64, 4))
    assert [k[0] for k in kernels(*ops)] == [(0,), (1,)]


def test_a_tensor_is_read_before_it_is_written_over():
    # a is a running mean: d is made from it by way of b, then c is put in its place.
    ops = (op(POINTWISE, "a", "b"), op(LIBRARY, "ac", "a"), op(POINTWISE, "b", "d"), op(POINTWISE, "a", "e"))
    assert kernels(*ops) == [((0, 2), "a", "d"), ((1,), "c", "a"), ((3,), "a", "e")]


def test_what_is_put_into_a_copy_is_put_into_memory_that_the_copy_fills():
    ops = (op(POINTWISE, "a", "b"), op(POINTWISE, "b", "c"), op(LIBRARY, "cx", "c"))
    assert kernels(*ops) == [((0, 1), "a", "c"), ((2,), "x", "c")]
