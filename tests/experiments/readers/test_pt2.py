"""A program saved by torch.export is the same model again; a crafted one is refused before anything of it
runs.
"""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from experiments.core.errors import BadInput  # noqa: E402
from experiments.core.options import WorkloadOptions  # noqa: E402
from experiments.models import pt2_plan  # noqa: E402
from experiments.models.build import build  # noqa: E402
from experiments.readers.base import open_file  # noqa: E402
from experiments.readers.pt2 import READER  # noqa: E402
from experiments.workloads.aggregate import layer_graph  # noqa: E402
from experiments.workloads.operators import ASSERTIONS, ATEN_OPERATORS, SIZE_ARITHMETIC  # noqa: E402
from tests.experiments.readers.crafted_pt2 import CONSTANTS, GRAPH, WEIGHTS, edited, members_of, packed  # noqa: E402
from tests.experiments.readers.exported_models import (  # noqa: E402
    Original,
    both_steps,
    greatest_difference,
    open_batch,
    original,
    read_back,
    same_step,
)

pytestmark = pytest.mark.torch


def save(
    made: Original, file: Path, training: bool = False, fixed: bool = False, plain: bool = False
) -> Path:
    """``plain``: without in-place operations, broken down to basic ones."""
    sizes = None if fixed else open_batch(made)
    program = torch.export.export(made.body.train(training), made.batch, dynamic_shapes=sizes, strict=False)
    torch.export.save(program.run_decompositions() if plain else program, file)
    return file


@pytest.mark.parametrize(
    ("name", "training", "options"),
    [
        ("mlp", False, {"batch": 8}),
        ("gpt2-tiny", False, {"batch": 4, "sequence": 64}),
        ("resnet18", True, {"batch": 4, "image": 64}),
        ("bert", False, {"batch": 4, "sequence": 32}),
    ],
)
def test_a_program_is_the_model_it_was_saved_from(
    name: str, training: bool, options: dict[str, int], tmp_path: Path
) -> None:
    made = original(name, optimizer="adamw", **options)
    source = read_back(save(made, tmp_path / "model.pt2", training), made.source.options)
    assert greatest_difference(made, source) < 1e-4
    expected, ours = both_steps(made, source)
    same_step(expected, ours, peak=0.02)
    assert ours.flops == expected.flops
    assert layer_graph(ours).layer == layer_graph(expected).layer


def test_a_program_without_in_place_operations_trains_with_the_batchs_statistics(tmp_path: Path) -> None:
    """Its batch normalizations give their new running statistics back; here they are updated in
    place again.
    """
    made = original("resnet18", batch=4, image=64, optimizer="sgd")
    source = read_back(save(made, tmp_path / "plain.pt2", training=True, plain=True), made.source.options)
    assert greatest_difference(made, source) < 1e-4
    same_step(*both_steps(made, source), peak=0.02)


def test_an_open_batch_takes_any_size_and_a_fixed_one_keeps_its_own(tmp_path: Path) -> None:
    made = original("gpt2-tiny", batch=4, sequence=64)
    free = read_back(save(made, tmp_path / "free.pt2"), WorkloadOptions(batch=3))
    assert [spec.shape for spec in build(free).inputs] == [(3, 64), (3, 64)]
    fixed = read_back(save(made, tmp_path / "fixed.pt2", fixed=True), WorkloadOptions(batch=3))
    with pytest.raises(BadInput, match=r"node \d+ .*view.*cannot be carried out"):
        build(fixed)
    with pytest.raises(BadInput, match="sequence 32: the file was exported for 64"):
        read_back(tmp_path / "free.pt2", WorkloadOptions(sequence=32))


def test_tied_weights_are_one_parameter(tmp_path: Path) -> None:
    made = original("gpt2-tiny", batch=2, sequence=64)
    program = read_back(save(made, tmp_path / "tied.pt2"), WorkloadOptions()).program
    assert program is not None
    assert "tokens.weight" in program.parameters
    assert "head.weight" not in program.parameters
    assert next(entry.high for entry in program.inputs) == 256


class Sizes(torch.nn.Module):
    """Half-precision weights, a stored constant, a view of a larger storage, and arithmetic on sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(6, 4, dtype=torch.bfloat16)
        whole = torch.arange(48, dtype=torch.bfloat16).reshape(6, 8)
        self.register_buffer("part", whole[:, 2:6].t())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.line(x) + torch.tensor([1.0, -1.0, 2.0, 0.5], dtype=torch.bfloat16)
        y = torch.nn.functional.dropout(y @ self.part, 0.5, self.training)
        return y.reshape(x.shape[0] * 2, 3)


def test_odd_tensors_are_read(tmp_path: Path) -> None:
    model, x = Sizes(), torch.randn(5, 6).bfloat16()
    sizes = ({0: torch.export.Dim("rows")},)
    torch.export.save(torch.export.export(model, (x,), dynamic_shapes=sizes), tmp_path / "odd.pt2")
    source = read_back(tmp_path / "odd.pt2", WorkloadOptions(batch=5, training=False))
    assert source.program is not None
    assert source.program.dtype == "bfloat16"
    with torch.no_grad():
        assert torch.equal(build(source).module.body.eval()(x), model.eval()(x))


# Crafted files. Each is a sound archive with one thing changed.


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The members of a small program, by path below the archive's folder."""
    file = tmp_path_factory.mktemp("pt2") / "model.pt2"
    torch.export.save(torch.export.export(torch.nn.Linear(3, 2), (torch.ones(1, 3),)), file)
    return members_of(file)


def target(name: str) -> Callable[[dict[str, bytes]], None]:
    return edited(GRAPH, lambda content: content["graph_module"]["graph"]["nodes"][0].update(target=name))


def argument(**value: Any) -> Callable[[dict[str, bytes]], None]:
    return edited(GRAPH, lambda c: c["graph_module"]["graph"]["nodes"][0]["inputs"][0].update(arg=value))


def weight(**change: Any) -> Callable[[dict[str, bytes]], None]:
    return edited(WEIGHTS, lambda content: content["config"]["weight"].update(change))


def meta(**change: Any) -> Callable[[dict[str, bytes]], None]:
    return edited(WEIGHTS, lambda content: content["config"]["weight"]["tensor_meta"].update(change))


class Evil:
    """What a pickle does when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a pickle of the file was loaded",))


def constant(path_name: str, pickled: bool) -> Callable[[dict[str, bytes]], None]:
    def edit(members: dict[str, bytes]) -> None:
        entry = {"path_name": path_name, "is_param": False, "use_pickle": pickled, "tensor_meta": None}
        members[CONSTANTS] = json.dumps({"config": {"evil": entry}}).encode()
        members[f"data/constants/{path_name}"] = pickle.dumps(Evil())

    return edit


def member(path: str, content: bytes = b"x") -> Callable[[dict[str, bytes]], None]:
    return lambda members: members.update({path: content})


CRAFTED: dict[str, tuple[Callable[[dict[str, bytes]], Any], str]] = {
    "pickled weight": (weight(use_pickle=True), "weight.*is a pickle"),
    "pickled constant": (constant("tensor_0", True), "evil.*is a pickle"),
    "pickled object": (constant("custom_obj_0", True), "evil.*is a pickle"),
    "object not said to be pickled": (constant("opaque_obj_0", False), "of no known kind"),
    "weights of torch 2.8": (member("data/weights/model.pt"), "keeps its weights in a pickle"),
    "program of torch 2.4": (member("serialized_exported_program.json"), "keeps its weights in a pickle"),
    "compiled binary": (member("data/aotinductor/model/a.so"), "holds a compiled binary"),
    "os.system": (target("os.system"), r"node 0 \('os.system'\): is not on the list"),
    "builtins": (target("builtins.eval"), "is not on the list"),
    "another namespace": (target("torch.ops.evil.run.default"), "is not on the list"),
    "reads a file": (target("torch.ops.aten.from_file.default"), "is not on the list"),
    "higher order": (target("torch.ops.higher_order.cond"), "is not on the list"),
    "attribute of an operator": (target("torch.ops.aten.add.Tensor.__class__"), "is not on the list"),
    "operator as argument": (argument(as_operator="os.system"), "an argument of kind 'as_operator'"),
    "graph as argument": (argument(as_graph={}), "an argument of kind 'as_graph'"),
    "unknown value": (argument(as_tensor={"name": "nothing"}), "'nothing' is not made before"),
    "huge integer": (argument(as_int=2**80), "is no whole number"),
    "integer of 5000 digits": (
        lambda m: m.update({GRAPH: m[GRAPH].replace(b'"major": 8', b'"major": ' + b"8" * 5000)}),
        "integer of 5000 digits",
    ),
    "two kinds at once": (argument(as_int=1, as_float=1.0), "an object of one key"),
    "wrong version": (edited(GRAPH, lambda c: c["schema_version"].update(major=9)), "schema version .*9"),
    "wrong archive version": (member("archive_version", b"7"), "archive_version: '7'"),
    "wrong order of bytes": (member("byteorder", b"big"), "byteorder: 'big'"),
    "no graph": (lambda m: m.pop(GRAPH), "holds 0 models"),
    "two models": (lambda m: m.update({"models/b.json": m[GRAPH]}), "holds 2 models"),
    "no weights": (lambda m: m.pop(WEIGHTS), "model_weights_config.json: is missing"),
    "no bytes of a weight": (lambda m: m.pop("data/weights/weight_0"), "weight_0: is missing"),
    "weight of another place": (weight(path_name="../../../etc/passwd"), "of no known kind"),
    "weight that is not there": (weight(path_name="weight_9"), "weight_9: is missing"),
    "more elements than bytes": (meta(sizes=[{"as_int": 2000}, {"as_int": 3}]), "bytes for shape"),
    "expanded beyond its bytes": (
        meta(sizes=[{"as_int": 2**40}, {"as_int": 2**20}], strides=[{"as_int": 0}, {"as_int": 0}]),
        "bytes for shape",
    ),
    "negative offset": (meta(storage_offset={"as_int": -4}), "is no size"),
    "unknown element type": (meta(dtype=28), "dtype 28"),
    "sparse": (meta(layout=1), "is not a dense tensor"),
    "no such member": (member("data/secrets/key"), "is no part of an exported program"),
    "absolute path": (member("/etc/passwd"), "is no path inside"),
    "path upward": (member("extra/../../x"), "is no path inside"),
    "not JSON": (member(GRAPH, b"{"), "not valid JSON"),
    "deep JSON": (member(GRAPH, b"[" * 100_000 + b"]" * 100_000), "nested too deeply"),
    "a list": (member(GRAPH, b"[]"), "'schema_version' is None"),
}


@pytest.mark.parametrize("name", sorted(CRAFTED))
def test_a_crafted_archive_is_refused(name: str, sound: dict[str, bytes], tmp_path: Path) -> None:
    change, reason = CRAFTED[name]
    members = dict(sound)
    change(members)
    (tmp_path / "model.pt2").write_bytes(packed(members))
    with pytest.raises(BadInput, match=reason):
        open_file(tmp_path / "model.pt2", "pt2", WorkloadOptions())


def test_the_sound_archive_is_read(sound: dict[str, bytes], tmp_path: Path) -> None:
    """The positive control of all the crafted ones; packed again, and with the pickle of sample inputs
    poisoned.
    """
    poisoned = {**sound, "data/sample_inputs/model.pt": pickle.dumps(Evil())}
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        (tmp_path / "model.pt2").write_bytes(packed(poisoned, method))
        opened = open_file(tmp_path / "model.pt2", "auto", WorkloadOptions())
        assert opened.reader is READER
        assert build(opened.reading.value).inputs[0].shape == (1, 3)


def test_a_bomb_is_stopped_before_it_is_unpacked(sound: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "bomb.pt2").write_bytes(
        packed({**sound, "data/weights/weight_0": bytes(1 << 26)}, zipfile.ZIP_DEFLATED)
    )
    with pytest.raises(BadInput, match="unpacks to more than"):
        open_file(tmp_path / "bomb.pt2", "auto", WorkloadOptions())


def test_what_may_be_called_exists_and_is_computation() -> None:
    """Every name of the list is one of torch's, and none of them is one that reads files or draws
    at random.
    """
    missing = [name for name in ATEN_OPERATORS if not hasattr(torch.ops.aten, name)]
    assert missing == []
    random = [
        name
        for name in ATEN_OPERATORS
        for overload in getattr(torch.ops.aten, name).overloads()
        if torch.Tag.nondeterministic_seeded in getattr(getattr(torch.ops.aten, name), overload).tags
        and name.rstrip("_") not in pt2_plan.DROPPING
    ]
    assert random == []
    for name in SIZE_ARITHMETIC:
        assert callable(pt2_plan._bound_sizes(name))
    assert not ASSERTIONS & {f"torch.ops.aten.{name}" for name in ATEN_OPERATORS}
