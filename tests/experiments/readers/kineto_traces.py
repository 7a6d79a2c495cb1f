"""Hand-made PyTorch profiler traces, small enough to work out every figure."""

from __future__ import annotations

import json
from typing import Any

Event = dict[str, Any]
FLOAT = "float"


def call(
    name: str, start: float, duration: float, thread: int = 1, cat: str = "cpu_op", **args: Any
) -> Event:
    """A call from ``start`` microseconds on; ``args`` with underscores for spaces, ``dims`` and ``types`` for
    inputs.
    """
    dims, types = args.pop("dims", None), args.pop("types", None)
    told = {name.replace("_", " "): value for name, value in args.items()}
    if dims is not None:
        told |= {"Input Dims": dims, "Input type": types or [FLOAT if size else "Scalar" for size in dims]}
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 1,
        "tid": thread,
        "ts": start,
        "dur": duration,
        "args": told,
    }


def note(name: str, start: float, duration: float) -> Event:
    return call(name, start, duration, cat="user_annotation")


def node(name: str, start: float, duration: float, sequence: int, thread: int = 2) -> list[Event]:
    """Autograd's two wrappers of a backward node."""
    number = {"Sequence number": sequence}
    outer = call(f"autograd::engine::evaluate_function: {name}", start, duration, thread)
    inner = call(name, start, duration, thread)
    return [{**event, "args": number} for event in (outer, inner)]


def kernel(name: str, start: float, duration: float, stream: int = 7, **args: Any) -> Event:
    event = call(name, start, duration, cat="kernel", device=0, stream=stream)
    event["args"] |= {name.replace("_", " "): value for name, value in args.items()}
    return event


def memory(time: float, address: int, size: int, total: int, thread: int = 1, cuda: bool = True) -> Event:
    device = {"Device Type": 1, "Device Id": 0} if cuda else {"Device Type": 0, "Device Id": -1}
    args = {"Addr": address, "Bytes": size, "Total Allocated": total, **device}
    return {
        "ph": "i",
        "cat": "cpu_instant_event",
        "name": "[memory]",
        "pid": 1,
        "tid": thread,
        "ts": time,
        "args": args,
    }


def trace(*events: Event | list[Event], **header: Any) -> bytes:
    rows = [row for event in events for row in (event if isinstance(event, list) else [event])]
    return json.dumps({"schemaVersion": 1, "deviceProperties": [], **header, "traceEvents": rows}).encode()


#: Parameters [256, 128] and [256], a batch [64, 128] of floats, and 4,096 bytes that no op mentions.
BEFORE = 131_072 + 1_024 + 32_768 + 4_096
LINEAR = [[256], [64, 128], [128, 256], [], []]
HIDDEN = 64 * 256 * 4


def on_a_gpu() -> bytes:
    """A linear layer, ReLU and a sum on a GPU, with SGD; the step before it was recorded too.

    Device times: addmm 100, relu 20 (told by correlation alone), sum 10, threshold_backward 30, mm 80 + 40 on
    another stream at the same time, sum 15, a kernel that nothing launched 5, the update 25: 325
    microseconds.
    """
    total = [BEFORE]

    def allocated(time: float, address: int, size: int, thread: int = 1) -> Event:
        total[0] += size
        return memory(time, address, size, total[0], thread)

    return trace(
        note("ProfilerStep#2", 0, 100),
        call("aten::add", 10, 20, dims=[[4], [4]], **{"External id": 90}),
        kernel("old", 15, 50, **{"External id": 90}),
        note("ProfilerStep#3", 1000, 1000),
        call("aten::linear", 1010, 40, dims=[[64, 128], [256, 128], [256]]),
        call("aten::t", 1011, 2, dims=[[256, 128]]),
        call("aten::addmm", 1015, 30, dims=LINEAR, **{"External id": 1, "Sequence number": 5}),
        call("cudaLaunchKernel", 1020, 3, cat="cuda_runtime", correlation=11),
        kernel("gemm", 1100, 100, **{"External id": 1, "correlation": 11}),
        allocated(1016, 1, HIDDEN),
        call("aten::relu", 1060, 10, dims=[[64, 256]], **{"External id": 2, "Sequence number": 6}),
        call("cudaLaunchKernel", 1065, 3, cat="cuda_runtime", correlation=12),
        kernel("relu", 1200, 20, correlation=12),
        allocated(1061, 2, HIDDEN),
        allocated(1072, 1, -HIDDEN),
        call("aten::sum", 1080, 10, dims=[[64, 256]], **{"External id": 3, "Sequence number": 7}),
        kernel("reduce", 1220, 10, **{"External id": 3}),
        allocated(1081, 3, 512),
        node("ReluBackward0", 1200, 40, 6),
        call("aten::threshold_backward", 1205, 30, 2, dims=[[64, 256], [64, 256], []], **{"External id": 4}),
        kernel("relu_backward", 1240, 30, **{"External id": 4}),
        allocated(1206, 4, HIDDEN, 2),
        allocated(1238, 2, -HIDDEN, 2),
        node("AddmmBackward0", 1250, 100, 5),
        call("aten::mm", 1255, 30, 2, dims=[[256, 64], [64, 128]], **{"External id": 5}),
        kernel("gemm", 1300, 80, **{"External id": 5}),
        kernel("split", 1340, 40, stream=9, **{"External id": 5}),
        allocated(1256, 5, 131_072, 2),
        call("aten::sum", 1300, 20, 2, dims=[[64, 256], [], []], **{"External id": 6}),
        kernel("reduce", 1380, 15, **{"External id": 6}),
        allocated(1301, 6, 1_024, 2),
        allocated(1345, 4, -HIDDEN, 2),
        call("torch::autograd::AccumulateGrad", 1360, 5, 2, dims=[[256]]),
        call("torch::autograd::AccumulateGrad", 1370, 5, 2, dims=[[256, 128]]),
        kernel("replayed", 1400, 5),
        note("Optimizer.step#SGD.step", 1500, 100),
        call(
            "aten::_foreach_add_",
            1510,
            50,
            dims=[[[256, 128], [256]], [[256, 128], [256]], []],
            types=["TensorList", "TensorList", "Scalar"],
            **{"External id": 7},
        ),
        kernel("multi_tensor", 1600, 25, **{"External id": 7}),
        deviceProperties=[{"name": "Imaginary GPU"}],
    )


def on_a_cpu(memory_events: bool = True, shapes: bool = True) -> bytes:
    """Two products and a ReLU between them, forward only: 10 + 5 + 20 microseconds, 3 between them inside a
    note.

    Each hidden tensor [8, 16] is 512 bytes; addmm uses 64 bytes of scratch.
    """
    first, second = [[16], [8, 4], [4, 16], [], []], [[8, 16], [16, 2]]
    rows = [
        note("evaluation", 0, 40),
        call("aten::addmm", 2, 10, **({"dims": first} if shapes else {})),
        call("aten::relu", 12, 5, **({"dims": [[8, 16]]} if shapes else {})),
        call("aten::mm", 18, 20, **({"dims": second} if shapes else {})),
    ]
    if memory_events:
        rows += [
            memory(3, 1, 512, 512, cuda=False),
            memory(4, 2, 64, 576, cuda=False),
            memory(5, 2, -64, 512, cuda=False),
            memory(13, 3, 512, 1024, cuda=False),
            memory(17.5, 1, -512, 512, cuda=False),
            memory(19, 4, 64, 576, cuda=False),
            memory(39, 3, -512, 64, cuda=False),
        ]
    return trace(rows)
