"""Models before torch is loaded: sizes of exported graphs, checked configurations, rules of substitution."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.workloads.hf import MODEL_TYPES, check_config, dropouts, longest_sequence, value_type
from experiments.workloads.model import ModelSource
from experiments.workloads.program import GraphProgram, Input, Weight
from experiments.workloads.substitutions import Operand, Operator, Substitution, Substitutions
from experiments.workloads.substitutions import check_substitution as checked_rule


def program(*inputs: Input, usual: dict[str, int] | None = None, **weights: Weight) -> GraphProgram:
    return GraphProgram("onnx", "f" * 64, (), inputs, "out", weights, usual=usual or {})


def test_open_sizes_play_the_part_of_their_place() -> None:
    """Words [batch, tokens], a mask with the same symbols, and pictures whose sides are open."""
    words = Input("words", "int64", ("n", "t"))
    pictures = Input("pictures", "float32", ("n", 3, "h", "h"))
    states = Input("states", "float32", ("n", "s", 16))
    assert program(words, pictures, states).roles == {
        "n": "batch",
        "t": "sequence",
        "h": "image",
        "s": "sequence",
    }


def test_an_open_size_that_is_neither_is_named() -> None:
    with pytest.raises(BadInput, match="'x' has the open size 'k' at dimension 1"):
        _ = program(Input("x", "float32", ("n", "k"))).roles


def test_sizes_come_from_the_file_then_from_its_export_then_from_habit() -> None:
    fixed = program(Input("words", "int64", (4, 32)))
    assert (fixed.batch, fixed.sequence, fixed.image) == (4, 32, None)
    exported = program(Input("words", "int64", ("n", "t")), usual={"n": 2, "t": 64})
    assert (exported.batch, exported.sequence) == (2, 64)
    open_ = program(Input("pictures", "float32", ("n", 3, "h", "w")))
    assert (open_.batch, open_.sequence, open_.image) == (8, None, 224)


def test_a_fixed_batch_may_change_and_a_fixed_sequence_may_not() -> None:
    """The bias of size 4 has the batch's size by chance: only a first dimension is a batch."""
    fixed = program(
        Input("words", "int64", (4, 32)), Input("places", "int64", (1, 32)), Input("w", "float32", (9, 4))
    )
    assert fixed.shapes(7, 32, 224) == ((7, 32), (1, 32), (9, 4))
    with pytest.raises(BadInput, match="the file was exported for 32"):
        fixed.shapes(7, 16, 224)
    opened = program(Input("words", "int64", ("n", "t")))
    assert opened.shapes(7, 16, 224) == ((7, 16),)


def test_the_type_of_a_program_is_that_of_most_bytes() -> None:
    """Two whole numbers of 8 bytes outweigh three halves, not ten."""
    index, few, many = Weight("int64", (2,), b""), Weight("float16", (3,), b""), Weight("float16", (10,), b"")
    assert program(a=index, b=few).dtype == "int64"
    assert program(a=index, b=few, c=many).dtype == "float16"
    assert program().dtype == "float32"


def test_a_graph_is_known_by_its_file_and_a_step_by_its_parts() -> None:
    plain = ModelSource("m", program=program())
    assert plain.identity()["program"] == ["onnx", "f" * 64] and "micro_batches" not in plain.identity()
    cut = ModelSource("m", options=WorkloadOptions(batch=8), micro_batches=4)
    assert cut.identity()["micro_batches"] == 4 and "program" not in cut.identity()


# --- configurations ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n_embd", 0),
        ("n_embd", True),
        ("n_embd", 768.0),
        ("n_embd", "768"),
        ("n_embd", 65537),
        ("n_layer", 257),
        ("vocab_size", 2**20 + 1),
        ("rope_theta", 2.0**33),
        ("depths", [1] * 257),
        ("depths", [65537]),
    ],
)
def test_sizes_that_would_not_fit_are_named_with_their_value(field: str, value: Any) -> None:
    with pytest.raises(BadInput, match=field):
        check_config({"model_type": "gpt2", field: value}, "config.json")


def test_what_would_run_code_is_dropped_with_a_warning() -> None:
    config = {
        "model_type": "gpt2",
        "n_embd": 65536,
        "auto_map": {"AutoModel": "evil.Model"},
        "use_cache": True,
    }
    kept, warnings = check_config(config, "config.json")
    assert kept == {"model_type": "gpt2", "n_embd": 65536}
    assert warnings == ("auto_map is ignored: nothing named in a file is run or fetched",)
    for kind in ("mamba", None, ["gpt2"]):
        with pytest.raises(BadInput, match="cannot be built"):
            check_config({"model_type": kind}, "config.json")


def test_a_step_is_as_long_as_positions_allow_up_to_the_usual() -> None:
    """RoBERTa's first two positions are for padding."""
    assert longest_sequence({"max_position_embeddings": 514}, MODEL_TYPES["roberta"]) == 512
    assert longest_sequence({"max_position_embeddings": 100}, MODEL_TYPES["roberta"]) == 98
    assert longest_sequence({"n_positions": 8192}, MODEL_TYPES["gpt2"]) == 1024
    assert longest_sequence({}, MODEL_TYPES["bert"]) == 512


def test_types_and_dropouts_of_a_configuration() -> None:
    assert value_type({"torch_dtype": "float16"}, MODEL_TYPES["gpt2"]) == "float16"
    assert value_type({"dtype": "int4"}, MODEL_TYPES["mixtral"]) == "bfloat16"
    rates = {
        "attn_pdrop": 0.1,
        "resid_pdrop": 0,
        "dropout_prob": "0.1",
        "hidden_dropout": 1,
        "use_dropout": True,
    }
    assert dropouts(rates) == ("attn_pdrop", "hidden_dropout")
    assert dropouts({"model_type": "gpt2", **rates}) == ("attn_pdrop", "embd_pdrop", "hidden_dropout")
    assert dropouts({"model_type": "llava", "text_config": {"model_type": "opt"}}) == ("dropout",)


# --- substitutions ----------------------------------------------------------------------------------

A, B = Operand(-1), Operand(-2)
ADD = Operator("ewadd", (A, B))
RELU = Operator("relu", (Operand(0),))


def rule(
    source: tuple[Operator, ...], target: tuple[Operator, ...], *outputs: tuple[int, int]
) -> Substitution:
    return Substitution("r", source, target, tuple((Operand(a), Operand(b)) for a, b in outputs))


def test_a_rule_knows_its_variables_and_those_it_invents() -> None:
    swapped = rule((ADD,), (Operator("ewadd", (B, A)),), (0, 0))
    assert swapped.variables == (B, A) and swapped.unbound == ()
    invented = rule((Operator("relu", (A,)),), (ADD,), (0, 0))
    assert invented.unbound == (B,)
    census = Substitutions("two", (swapped, invented)).census()
    assert census["bindable"] == {"yes": 1, "no": 1} and census["operators"] == {"1->1": 2}


def test_rules_between_devices_are_told_apart() -> None:
    partition = Operator("partition", (A,), (("dim", 0),))
    assert rule((ADD,), (ADD,), (0, 0)).parallel == "none"
    assert rule((partition,), (partition,), (0, 0)).parallel == "all"
    assert rule((partition, RELU), (Operator("relu", (A,)),), (1, 0)).parallel == "some"
    assert partition.parameter("dim") == 0 and partition.parameter("degree", 4) == 4
    with pytest.raises(BadInput, match="partition has no degree"):
        partition.parameter("degree")


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (rule((), (ADD,), (0, 0)), "source of 0 operators"),
        (rule((ADD,) * 17, (ADD,), (0, 0)), "source of 17 operators"),
        (rule((RELU,), (ADD,), (0, 0)), "reads output 0 of operator 0"),
        (rule((Operator("relu", ()),), (ADD,), (0, 0)), "relu of 0 inputs"),
        (rule((Operator("relu", (A,), (("p", 1), ("p", 2))),), (ADD,), (0, 0)), "a parameter twice"),
        (rule((ADD,), (ADD,)), "no outputs mapped"),
        (rule((ADD,), (ADD, ADD), (0, 0), (0, 1)), "or one twice"),
        (rule((ADD,), (ADD,), (0, 1)), "maps output 0 of operator 1"),
        (rule((ADD,), (ADD,), (1, 0)), "maps output 0 of operator 1"),
    ],
)
def test_a_rule_that_is_no_graph_is_refused(wrong: Substitution, what: str) -> None:
    with pytest.raises(BadInput, match=what):
        checked_rule(wrong, "rule 7")


def test_a_target_may_be_a_variable_of_the_source_itself() -> None:
    """Two transposes are nothing: the result is the input; but only one that the source binds."""
    twice = (Operator("transpose", (A,)), Operator("transpose", (Operand(0),)))
    identity = Substitution("r", twice, (), ((Operand(1), A),))
    assert checked_rule(identity, "rule 1") is identity
    with pytest.raises(BadInput, match="maps output 0 of operator -2"):
        checked_rule(Substitution("r", twice, (), ((Operand(1), B),)), "rule 2")
