"""Bad files that must be refused with a reason that names the place, and odd files that must be accepted.

All are generated here; none is stored. Uploads through the web are tested with the same lists.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.hostile_traces import BAD_TRACES, ODD_TRACES

Bytes = Callable[[], bytes]


@dataclass(frozen=True)
class BadFile:
    """``make`` gives the content; the refusal must contain ``fragment``. ``format``: named by the user, or auto."""

    name: str
    make: Bytes
    fragment: str
    format: str = "auto"


@dataclass(frozen=True)
class OddFile:
    """An unusual file that is valid: read as ``format`` with ``rows`` jobs or requests (``None``: not counted)."""

    name: str
    make: Bytes
    format: str
    rows: int | None = None


HEADER = "job_id,submission_time,duration,num_gpu\n"
GOOD_ROWS = "a,0,10,1\nb,5,20,2\n"
CONFIG = {
    "model_type": "gpt2",
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "vocab_size": 256,
}


def text(content: str) -> Bytes:
    return lambda: content.encode()


def raw(content: bytes) -> Bytes:
    return lambda: content


def jobs(rows: str) -> Bytes:
    return text(HEADER + rows)


def config(**changes: object) -> Bytes:
    return text(json.dumps({**CONFIG, **changes}))


def gzipped(make: Bytes) -> Bytes:
    return lambda: gzip.compress(make(), mtime=0)


def gzip_bomb() -> bytes:
    """120 MB of zeros in 120 kB."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    parts = [packer.compress(bytes(1 << 20)) for _ in range(120)]
    return b"".join(parts) + packer.flush()


def zip_of(*files: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return buffer.getvalue()


def zip_bomb() -> bytes:
    return zip_of(*((f"part{number}.csv", bytes(1 << 25)) for number in range(3)))


def zip_nested() -> bytes:
    content = (HEADER + GOOD_ROWS).encode()
    for _ in range(5):
        content = zip_of(("inner.zip", content))
    return content


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for info, content in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def tar_link() -> bytes:
    link = tarfile.TarInfo("jobs.csv")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return tar_of((link, b""))


def tar_device() -> bytes:
    device = tarfile.TarInfo("jobs.csv")
    device.type, device.devmajor, device.devminor = tarfile.CHRTYPE, 1, 5
    return tar_of((device, b""))


def tar_many() -> bytes:
    return tar_of(*((tarfile.TarInfo(f"{number}.csv"), b"x") for number in range(1500)))


def tar_lying() -> bytes:
    """The header promises 10 MB, the file ends after a block."""
    info = tarfile.TarInfo("jobs.csv")
    info.size = 10_000_000
    return info.tobuf() + bytes(512)


def png() -> bytes:
    size = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    chunk = b"IHDR" + size
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))


def pickled() -> bytes:
    return pickle.dumps({"job": "a", "submit": 0})


def torch_checkpoint() -> bytes:
    return zip_of(("archive/data.pkl", pickled()), ("archive/version", b"3"), method=zipfile.ZIP_STORED)


def g10(**changes: object) -> Bytes:
    content = {
        "model": "tiny",
        "batch": 1,
        "ops_cols": ["name", "us", "inputs", "outputs"],
        "ops": [["load", 1.0, [], [0]], ["makeLoss", 1.0, [0], [1]]],
        "tensors_cols": ["bytes", "is_global"],
        "tensors": {"0": [4096, 1], "1": [4096, 0]},
    }
    return text(json.dumps({**content, **changes}))


def step_of(**arrays: object) -> Bytes:
    """A step file with these arrays and nothing else."""

    def make() -> bytes:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
        return buffer.getvalue()

    return make


def step_header(content: bytes) -> Bytes:
    return step_of(header=np.frombuffer(content, np.uint8))


def step_claiming() -> bytes:
    """An array header that claims 10^14 numbers and brings none."""
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (100000000000000,), }"
    header += b" " * (117 - len(header)) + b"\n"
    array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    return zip_of(("header.npy", array), method=zipfile.ZIP_STORED)


def deep_json() -> bytes:
    return b'{"model_type": "gpt2", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


def protobuf(*fields: tuple[int, int | str | bytes]) -> bytes:
    """A message of numbers and of strings or messages inside, each (field number, value)."""
    parts = []
    for number, value in fields:
        content = value.encode() if isinstance(value, str) else value
        if isinstance(content, int):
            parts += [varint(number << 3), varint(content)]
        else:
            parts += [varint(number << 3 | 2), varint(len(content)), content]
    return b"".join(parts)


def varint(value: int) -> bytes:
    head = [value >> shift & 127 | 128 for shift in range(0, value.bit_length() - 7, 7)]
    return bytes([*head, value >> 7 * len(head)])


def onnx_tensor(name: str, shape: tuple[int, int]) -> bytes:
    """A float input or output [batch, size]; 0 is an open batch."""
    sizes = [protobuf((1, size) if size else (2, "batch")) for size in shape]
    tensor = protobuf((1, 1), (2, protobuf(*((1, size) for size in sizes))))
    return protobuf((1, name), (2, protobuf((1, tensor))))


def onnx_model(operator: str = "MatMul", outside: bool = False, domain: str = "") -> Bytes:
    """``y = x w`` with a 3 x 2 weight; ``outside`` claims that the weight lies in another file."""

    def make() -> bytes:
        weight = [(1, 3), (1, 2), (2, 1), (8, "w"), (9, np.arange(6, dtype=np.float32).tobytes())]
        place = protobuf((1, "location"), (2, "../../../etc/passwd"))
        weight = [*weight[:4], (13, place), (14, 1)] if outside else weight
        node = protobuf((1, "x"), (1, "w"), (2, "y"), (3, "product"), (4, operator), (7, domain))
        graph = protobuf(
            *((1, node), (2, "graph"), (5, protobuf(*weight))),
            *((11, onnx_tensor("x", (0, 3))), (12, onnx_tensor("y", (0, 2)))),
        )
        return protobuf((1, 10), (2, "corpus"), (7, graph), (8, protobuf((1, ""), (2, 21))))

    return make


def pt2(
    target: str = "torch.ops.aten.mul.Tensor", pickled: bool = False, major: int = 8, **more: bytes
) -> Bytes:
    """A program saved by ``torch.export``: one operator on ``x`` [2, 3] and a parameter of that shape."""

    def make() -> bytes:
        meta = {
            "dtype": 7,
            "sizes": [{"as_int": 2}, {"as_int": 3}],
            "layout": 7,
            "storage_offset": {"as_int": 0},
        }
        meta["strides"] = [{"as_int": 3}, {"as_int": 1}]
        weight = {"path_name": "weight_0", "is_param": True, "use_pickle": pickled, "tensor_meta": meta}
        given = [
            {"name": key, "arg": {"as_tensor": {"name": name}}}
            for key, name in (("self", "x"), ("other", "p"))
        ]
        node = {"target": target, "inputs": given}
        node |= {"outputs": [{"as_tensor": {"name": "y"}}], "metadata": {}}
        signature = {
            "input_specs": [
                {"parameter": {"arg": {"name": "p"}, "parameter_name": "w"}},
                {"user_input": {"arg": {"as_tensor": {"name": "x"}}}},
            ],
            "output_specs": [{"user_output": {"arg": {"as_tensor": {"name": "y"}}}}],
        }
        graph = {"nodes": [node], "tensor_values": {"x": meta, "y": meta}}
        program = {
            "graph_module": {"graph": graph, "signature": signature},
            "schema_version": {"major": major},
        }
        members = {
            "data/weights/weight_0": np.ones(6, np.float32).tobytes(),
            "data/weights/model_weights_config.json": json.dumps({"config": {"w": weight}}).encode(),
            "data/constants/model_constants_config.json": b'{"config": {}}',
            "models/model.json": json.dumps(program).encode(),
            **{"archive_format": b"pt2", "archive_version": b"0", "byteorder": b"little"},
            **{path.replace("__", "/").replace("_dot_", "."): content for path, content in more.items()},
        }
        return zip_of(*((f"model/{path}", content) for path, content in members.items()))

    return make


UNREADABLE = "not a format that can be read"

BAD: list[BadFile] = [
    # nothing, or not what the name says
    BadFile("empty.csv", raw(b""), UNREADABLE),
    BadFile("blank.csv", raw(b"\n\n\n"), UNREADABLE),
    BadFile("picture.json", png, UNREADABLE),
    BadFile("model.pkl", pickled, UNREADABLE),
    BadFile("checkpoint.pt", torch_checkpoint, UNREADABLE),
    BadFile("empty-named.csv", raw(b""), "empty-named.csv: the file is empty", "jobs-csv"),
    BadFile("nothing.zip", raw(b"PK\x05\x06" + bytes(18)), "nothing.zip: the archive holds no file"),
    # packed
    BadFile("truncated.csv.gz", lambda: gzipped(jobs(GOOD_ROWS))()[:-12], "truncated.csv.gz: broken archive"),
    BadFile("noise.csv.gz", raw(b"\x1f\x8b\x08\x00" + bytes(range(200))), "noise.csv.gz: broken archive"),
    BadFile("bomb.csv.gz", gzip_bomb, "bomb.csv.gz: unpacks to more than"),
    BadFile("bomb.zip", zip_bomb, "bomb.zip: unpacks to more than"),
    BadFile("nested.zip", zip_nested, "packed inside packed files"),
    BadFile("truncated.zip", lambda: zip_of(("a.csv", bytes(999)))[:-30], "truncated.zip: broken archive"),
    BadFile("link.tar", tar_link, "link.tar: jobs.csv: is a link"),
    BadFile("device.tar", tar_device, "device.tar: jobs.csv: is a link, a device"),
    BadFile("many.tar", tar_many, "many.tar: too many files"),
    BadFile("lying.tar", tar_lying, "broken archive: unexpected end of data"),
    BadFile(
        "mixed.zip",
        lambda: zip_of(
            ("a.csv", (HEADER + GOOD_ROWS).encode()), ("b.csv", b"arrival,prompt,output\n0,1,1\n")
        ),
        "mixed.zip: b.csv: is requests-csv",
    ),
    BadFile(
        "same-name.zip",
        lambda: zip_of(
            ("x/a.csv", (HEADER + GOOD_ROWS).encode()), ("y/a.csv", (HEADER + GOOD_ROWS).encode())
        ),
        "a job id appears twice",
    ),
    # tables of jobs
    BadFile("columns.csv", text("id,when,what\n1,2,3\n"), UNREADABLE),
    BadFile(
        "wrong.csv", text("id,when,what\n1,2,3\n"), "line 1: column 'job_id' is missing", "elasticflow-raw"
    ),
    BadFile("no-rows.csv", text(HEADER), "no rows after the header"),
    BadFile("twice.csv", text(HEADER.strip() + ",duration\na,0,1,1,2\n"), "column 'duration' appears twice"),
    BadFile("short.csv", jobs("a,0,10,1\nb,5,20\n"), "short.csv, line 3: 3 cells"),
    BadFile("long.csv", jobs("a,0,10,1,9\n"), "long.csv, line 2: 5 cells"),
    BadFile("negative.csv", jobs("a,0,10,1\nb,0,-1,1\n"), "line 3, column duration: '-1' is out of range"),
    BadFile("past.csv", jobs("a,-5,10,1\n"), "line 2, column submission_time: '-5' is out of range"),
    BadFile("nan.csv", jobs("a,0,nan,1\n"), "line 2, column duration: 'nan' is not a number"),
    BadFile("infinity.csv", jobs("a,0,Infinity,1\n"), "column duration: 'Infinity' is not a number"),
    BadFile("overflow.csv", jobs("a,0,1e999,1\n"), "column duration: '1e999' is out of range"),
    BadFile("digits.csv", jobs(f"a,0,{'9' * 5000},1\n"), "line 2, column duration"),
    BadFile("underscore.csv", jobs("a,0,1_000,1\n"), "column duration: '1_000' is not a number"),
    BadFile("other-digits.csv", jobs("a,0,١٢,1\n"), "column duration: '١٢' is not a number"),
    BadFile("no-gpus.csv", jobs("a,0,10,0\n"), "line 2, column num_gpu: '0' is out of range"),
    BadFile("half-gpu.csv", jobs("a,0,10,0.5\n"), "column num_gpu: '0.5' is out of range"),
    BadFile("part-gpu.csv", jobs("a,0,10,1.5\n"), "column num_gpu: '1.5' is not a whole number"),
    BadFile("missing.csv", jobs("a,0,,1\n"), "line 2, column duration: '' is not a number"),
    BadFile("same-id.csv", jobs("a,0,10,1\nb,1,1,1\na,2,1,1\n"), "line 4, column job_id: 'a' appears twice"),
    BadFile("no-id.csv", jobs(",0,10,1\n"), "line 2, column job_id: '' is empty"),
    BadFile("nul.csv", jobs("a\0,0,10,1\n"), "nul.csv, line 2: a NUL character"),
    BadFile(
        "surrogate.csv", raw(HEADER.encode() + b"\xed\xa0\x80,0,10,1\n"), "surrogate.csv, line 2: byte 0xed"
    ),
    BadFile("latin1.csv", raw(HEADER.encode() + b"caf\xe9,0,10,1\n"), "line 2: byte 0xe9"),
    BadFile(
        "utf16.csv", lambda: (HEADER + GOOD_ROWS).encode("utf-16"), "line 1: byte 0xff", "elasticflow-raw"
    ),
    BadFile("quote.csv", jobs('"a,0,10,1\n'), "not CSV"),
    BadFile("wide-cell.csv", jobs(f'"{"x" * 200_000}",0,10,1\n'), "not CSV: field larger"),
    BadFile("wide.csv", lambda: (HEADER.strip() + ",x" * 300 + "\n").encode() + b"a", "cells", "jobs-csv"),
    # requests
    BadFile(
        "date.csv",
        text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-13-45 00:00:00,1,1\n"),
        "line 2, column TIMESTAMP: '2023-13-45 00:00:00' is not a time",
    ),
    BadFile(
        "silent.csv", text("arrival,prompt,output\n0,5,0\n"), "line 2, column output: '0' is out of range"
    ),
    # configurations and steps
    BadFile("deep.json", deep_json, "nested too deeply"),
    BadFile(
        "digits.json", text('{"model_type": "gpt2", "n_embd": ' + "9" * 5000 + "}"), "integer of 5000 digits"
    ),
    BadFile("nan.json", text('{"model_type": "gpt2", "n_embd": NaN}'), "NaN is not a JSON number"),
    BadFile("infinity.json", text('{"model_type": "gpt2", "n_embd": 1e999}'), "1e999 is out of range"),
    BadFile("twice.json", text('{"model_type": "gpt2", "n_embd": 1, "n_embd": 2}'), "'n_embd' appears twice"),
    BadFile("cut.json", lambda: config()()[:-3], "not valid JSON"),
    BadFile("nul.json", config(name="a\0b"), "NUL or lone surrogate"),
    BadFile("surrogate.json", config(name="\ud800"), "NUL or lone surrogate"),
    BadFile("list.json", text('["model_type"]'), UNREADABLE),
    BadFile("million-layers.json", config(n_layer=1_000_000), "n_layer"),
    BadFile("negative.json", config(n_embd=-64), "n_embd"),
    BadFile(
        "remote-code.json",
        config(model_type="mystery", auto_map={"AutoModel": "modeling_mystery.Mystery"}),
        "mystery",
    ),
    BadFile("empty-step.npz", step_header(b"{}"), "not a step file"),
    BadFile("no-json.npz", step_header(b"\xff\xfe"), "not a step file"),
    BadFile("deep-header.npz", step_header(b"[" * 100_000 + b"]" * 100_000), "not a step file"),
    BadFile("pickled.npz", step_of(header=np.array([{"a": 1}], object)), "not a step file"),
    BadFile("claims.npz", step_claiming, "not a step file"),
    BadFile("bomb.npz", step_of(header=np.zeros(1 << 26, np.uint8)), "bomb.npz: unpacks to more than"),
    BadFile("cut.npz", lambda: step_header(b"{}")()[:-40], "not a step file"),
    BadFile("g10-columns.json", g10(ops_cols=["name"]), "ops_cols"),
    BadFile("g10-negative.json", g10(ops=[["load", -1.0, [], [0]]]), "us = -1.0"),
    BadFile("g10-no-tensor.json", g10(ops=[["load", 1.0, [7], [0]]]), "op 0: inputs"),
    BadFile("g10-huge.json", g10(tensors={"0": [2**60, 1]}), "tensor 0: bytes"),
    BadFile("g10-no-ops.json", g10(ops=[]), "0 ops"),
    # exported models
    BadFile("cut.onnx", lambda: onnx_model()()[:-40], "cut.onnx: not an ONNX file"),
    BadFile("outside.onnx", onnx_model(outside=True), "tensor 'w': keeps its values in another file"),
    BadFile("loop.onnx", onnx_model("Loop"), "node 0 ('product'): operator 'Loop' is not known"),
    BadFile("foreign.onnx", onnx_model(domain="com.evil"), "operator 'com.evil.MatMul' is not known"),
    BadFile("empty-graph.onnx", raw(protobuf((1, 10), (7, b""))), "empty-graph.onnx: holds no graph"),
    BadFile("picture.onnx", png, "picture.onnx: not an ONNX file", "onnx"),
    BadFile("pickled.pt2", pt2(pickled=True), "'w': is a pickle (use_pickle)"),
    BadFile("system.pt2", pt2("os.system"), "node 0 ('os.system'): is not on the list"),
    BadFile(
        "reads-file.pt2", pt2("torch.ops.aten.from_file.default"), "is not on the list of what may be called"
    ),
    BadFile("version.pt2", pt2(major=99), "models/model.json: schema version"),
    BadFile("compiled.pt2", pt2(data__aotinductor__model__a=b"ELF"), "holds a compiled binary"),
    BadFile("older.pt2", pt2(data__weights__model_dot_pt=pickled()), "keeps its weights in a pickle"),
    BadFile("upward.pt2", pt2(**{"extra/../../x": b"x"}), "is no path inside the archive's one folder"),
    BadFile("no-format.pt2", pt2(archive_format=b"pt3"), "archive_format: 'pt3'"),
    BadFile("bomb.pt2", pt2(data__weights__weight_0=bytes(1 << 26)), "bomb.pt2: unpacks to more than"),
    BadFile("cut.pt2", lambda: pt2()()[:-40], "cut.pt2: broken archive", "pt2"),
]

ODD: list[OddFile] = [
    OddFile("bom.csv", raw(b"\xef\xbb\xbf" + (HEADER + GOOD_ROWS).encode()), "elasticflow-raw", 2),
    OddFile("crlf.csv", text((HEADER + GOOD_ROWS).replace("\n", "\r\n")), "elasticflow-raw", 2),
    OddFile("quoted.csv", jobs('"a, the first",0,"10",1\n"with ""quotes""",5,20,2\n'), "elasticflow-raw", 2),
    OddFile("line-break.csv", jobs('"two\nlines",0,10,1\n'), "elasticflow-raw", 1),
    OddFile(
        "spaces.csv",
        text("job_id, submission_time , duration,num_gpu\n a , 0, 10 ,1\n"),
        "elasticflow-raw",
        1,
    ),
    OddFile("extra.csv", text("x," + HEADER + "?,a,0,10,1\n"), "elasticflow-raw", 1),
    OddFile(
        "reordered.csv", text("num_gpu,job_id,duration,submission_time\n2,a,10,0\n"), "elasticflow-raw", 1
    ),
    OddFile("unsorted.csv", jobs("b,500,20,2\na,0,10,1\nc,250,1,1\n"), "elasticflow-raw", 3),
    OddFile("scientific.csv", jobs("a,1.5e3,1E+1,8e0\nb,.5,10.,1.0\n"), "elasticflow-raw", 2),
    OddFile("trailing.csv", jobs(GOOD_ROWS + "\n\n"), "elasticflow-raw", 2),
    OddFile("no-newline.csv", jobs(GOOD_ROWS.rstrip()), "elasticflow-raw", 2),
    OddFile("unicode.csv", jobs("作业-1,0,10,1\njob-é,1,10,1\n"), "elasticflow-raw", 2),
    OddFile("zero-seconds.csv", jobs("a,0,0,1\nb,0,0,1\n"), "elasticflow-raw", 2),
    OddFile("jobs.csv.gz", gzipped(jobs(GOOD_ROWS)), "elasticflow-raw", 2),
    OddFile(
        "two-streams.csv.gz",
        lambda: gzipped(text(HEADER))() + gzipped(text(GOOD_ROWS))(),
        "elasticflow-raw",
        2,
    ),
    OddFile(
        "gz-in.tar",
        lambda: tar_of((tarfile.TarInfo("deep/er/jobs.csv.gz"), gzipped(jobs(GOOD_ROWS))())),
        "elasticflow-raw",
        2,
    ),
    OddFile(
        "mac.zip",
        lambda: zip_of(
            ("clusters/one.csv", jobs(GOOD_ROWS)()),
            ("clusters/two.csv", jobs(GOOD_ROWS)()),
            ("__MACOSX/clusters/._one.csv", b"\0\5\x16\x07"),
            ("README.md", b"Job logs, with commas, and more."),
        ),
        "elasticflow-raw",
        4,
    ),
    OddFile("plain.csv", text("submit,gpus,service\n0,1,10\n0,1,10\n"), "jobs-csv", 2),
    OddFile(
        "zone.csv",
        text("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,10,3\n"),
        "azure-llm",
        1,
    ),
    OddFile(
        "hundred-thousand.csv",
        lambda: (HEADER + "".join(f"{n},{n % 977},{n % 89},{1 + n % 8}\n" for n in range(100_000))).encode(),
        "elasticflow-raw",
        100_000,
    ),
    OddFile(
        "config.json", config(auto_map={"AutoModel": "modeling.Evil"}, unknown=[1, {"a": None}]), "hf-config"
    ),
    OddFile("bom.json", lambda: b"\xef\xbb\xbf" + config()(), "hf-config"),
    OddFile("tiny-step.json", g10(), "g10"),
    OddFile("tiny.onnx", onnx_model(), "onnx"),
    OddFile("onnx-without-a-name", gzipped(onnx_model()), "onnx"),
    OddFile("tiny.pt2", pt2(data__sample_inputs__model_dot_pt=pickled()), "pt2"),
]

BAD += [BadFile(name, raw(content), fragment) for name, content, fragment in BAD_TRACES]
ODD += [OddFile(name, raw(content), format) for name, content, format in ODD_TRACES]
