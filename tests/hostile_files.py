"""What the hostile corpus is made of: bombs, links, headers that lie, and small valid files to spoil."""

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

import numpy as np

Bytes = Callable[[], bytes]

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
