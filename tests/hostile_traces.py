"""Bad and odd files of the trace formats (``kineto``, ``memory-snapshot``, ``chakra``) and of layer profiles
and model sheets. Part of the corpus.
"""

from __future__ import annotations

import gzip
import json
import os
from typing import Any

from tests.experiments.readers.chakra_traces import (
    COMPUTE,
    as_graph,
    delimited,
    node,
    number,
    training,
    varint,
)
from tests.experiments.readers.kineto_traces import call, memory, on_a_cpu, on_a_gpu, trace
from tests.experiments.readers.snapshots import event, pickled
from tests.experiments.readers.snapshots import training as snapshot


class Caller:
    """Runs a command when it is unpickled the ordinary way."""

    def __reduce__(self) -> Any:
        return os.system, ("echo owned",)


START = b"\x80\x04}(\x8c\x08segments"


def events(*rows: Any, **header: Any) -> bytes:
    return json.dumps({"schemaVersion": 1, "deviceProperties": [], **header, "traceEvents": [*rows]}).encode()


def scenario(**model: Any) -> bytes:
    row = {"name": "a", "rate": 1, "latency": 0.1, **model}
    return json.dumps({"duration": 5, "models": [row]}).encode()


def nested_calls() -> bytes:
    return trace([call("aten::add", index, 10_000 - 2 * index) for index in range(1000)])


def million_deep() -> bytes:
    """The key of a dict, a million tuples deep: hashing it ends an interpreter."""
    return START + b"}" + b")" + b"\x85" * 1_000_000 + b"Nsu."


def memo_bomb() -> bytes:
    """Each list holds the one before ten times: 10^40 events to whoever follows them all."""
    grown: list[Any] = []
    for _ in range(40):
        grown = [grown] * 10
    return pickled({"segments": [], "device_traces": [grown]})


def giant_memo() -> bytes:
    return START + b"]r\xff\xff\xff\x7fu"


def profile(*rows: str) -> bytes:
    """A PipeDream profile: ``rows`` are ``ID -- description``, all with the same figures, in a chain."""
    figures = (
        "forward_compute_time=1.000, backward_compute_time=2.000, activation_size=8.0, parameter_size=4.0"
    )
    return "".join(f"{row} -- {figures}\n" for row in rows).encode() + b"\tnode1 -- node2\n"


PROFILE = profile("node1 -- Linear(in_features=2, out_features=2)", "node2 -- ReLU(inplace)")
SHEET = (
    b"""{"hidden": 8, "feedforward": 32, "seq_size": 4, "attn_heads": 2, "attn_size": 4, "num_blocks": 3}"""
)

LOG = b"""{"INSTRUCTION":"CALL","NAME":"f","ARGS":[],"TIME":"5","RESULT":["a"]}
{"INSTRUCTION":"MEMORY","NAME":"a","MEMORY":"8"}
{"INSTRUCTION":"ALIAS","NAME":"a","ALIAS":"-1"}
"""

#: (name, content, fragment of the refusal)
BAD_TRACES: list[tuple[str, bytes, str]] = [
    ("scenario-nan.json", scenario().replace(b"0.1", b"NaN"), "NaN is not a JSON number"),
    ("scenario-path.json", scenario(latency=None, kernels="../x"), "has latency and kernels"),
    ("scenario-batches.json", scenario(rate=1e300), "models[0].rate"),
    ("scenario-slo.json", scenario(slo="soon"), "models[0].slo"),
    ("kineto-empty.json", events(), "no operators"),
    ("kineto-no-list.json", events()[:-3] + b"{}}", "traceEvents is not a list"),
    ("kineto-text.json", events("aten::add"), "event 0: 'aten::add' is not an object"),
    (
        "kineto-nan.json",
        events(call("a", 0, 1)).replace(b'"dur": 1', b'"dur": NaN'),
        "NaN is not a JSON number",
    ),
    ("kineto-before.json", events(call("a", -5, 1)), "event 0: ts = -5"),
    ("kineto-late.json", events(call("a", 1e300, 1)), "event 0: ts = 1e+300"),
    (
        "kineto-digits.json",
        events(call("a", 7, 1)).replace(b": 7", b": " + b"7" * 5000),
        "integer of 5000 digits",
    ),
    ("kineto-nameless.json", events({**call("a", 0, 1), "name": None}), "event 0: name = None"),
    ("kineto-deep.json", nested_calls(), "calls nested more than 300 deep"),
    (
        "kineto-huge.json",
        events(call("aten::add", 0, 9), memory(1, 1, 2**60, 0)),
        "event 1: Bytes = 115292150",
    ),
    ("kineto-cut.json.gz", gzip.compress(on_a_gpu(), mtime=0)[:-40], "broken archive"),
    (
        "snapshot-call.pickle",
        pickled({"segments": [], "device_traces": [Caller()]}),
        "opcode STACK_GLOBAL at byte",
    ),
    ("snapshot-old-call.pickle", pickled({"segments": Caller()}, 0), "opcode GLOBAL at byte"),
    ("snapshot-bytes.pickle", pickled({"segments": b"x"}), "opcode SHORT_BINBYTES at byte"),
    ("snapshot-set.pickle", pickled({"segments": {1}}), "opcode EMPTY_SET at byte"),
    ("snapshot-persistent.pickle", START + b"Pid\nu.", "opcode PERSID at byte"),
    ("snapshot-extension.pickle", START + b"\x82\x01u.", "opcode EXT1 at byte"),
    ("snapshot-deep.pickle", million_deep(), "nested more than 64 levels deep"),
    ("snapshot-memo.pickle", memo_bomb(), "device 0, event 0: is list"),
    ("snapshot-giant-memo.pickle", giant_memo(), "broken pickle"),
    ("snapshot-cut.pickle", pickled(snapshot())[:-20], "broken pickle"),
    ("snapshot-tail.pickle", pickled(snapshot()) + b"tail", "4 bytes after the end"),
    ("snapshot-integer.pickle", START + b"\x8a\xff" + b"\x7f" * 255 + b"u.", "an integer of 2039 bits"),
    (
        "snapshot-negative.pickle",
        pickled({"segments": [], "device_traces": [[event("alloc", 1, -1)]]}),
        "device 0, event 0: size = -1",
    ),
    ("snapshot-list.json", b'{"segments": [7], "device_traces": [[7]]}', "segment 0: is int"),
    ("chakra-cut.et", training()[:-5], "is cut or broken"),
    ("chakra-noise.et", delimited(b"\xff\xff\xff\xff"), "message 1 at byte"),
    ("chakra-endless.et", delimited() + varint(2**34), "is cut or broken"),
    ("chakra-none.et", delimited(), "no nodes"),
    ("chakra-twice.et", delimited(number(1, 1), number(1, 1)), "a node id appears twice"),
    (
        "chakra-cycle.et",
        delimited(node(1, "a", COMPUTE, 1, after=[2]), node(2, "b", COMPUTE, 1, after=[1])),
        "node 1 depends on itself",
    ),
    ("chakra-year.et", delimited(node(1, "a", COMPUTE, 2**60)), "message 1 at byte"),
    ("chakra-runtime.json", as_graph().replace(b'"runtime": 40', b'"runtime": -40'), "node 1: duration -40"),
    ("chakra-no-list.json", b'{"workload_graph": {}}', "workload_graph is no list"),
    ("profile-cycle.txt", PROFILE + b"\tnode2 -- node1\n", "is on a cycle"),
    ("profile-edge.txt", PROFILE + b"\tnode1 -- node7\n", "line 4: edge names 'node7'"),
    ("profile-negative.txt", PROFILE.replace(b"=4.0", b"=-4.0", 1), "line 1: parameter_size: '-4.0'"),
    ("profile-infinite.txt", PROFILE.replace(b"=2.000", b"=1e999", 1), "line 1: backward_compute_time"),
    ("profile-control.txt", PROFILE.replace(b"ReLU", b"Re\0LU"), "line 2: control characters"),
    ("profile-binary.txt", PROFILE + b"\xff\xfe", "is not UTF-8"),
    (
        "profile-twice.txt",
        PROFILE.replace(b"node2 --", b"node1 --", 1),
        "line 2: layer 'node1' appears twice",
    ),
    ("log-cut.log", LOG[:-20], "line 3: not valid JSON"),
    (
        "log-short.log",
        LOG[: LOG.index(b'{"INSTRUCTION":"ALIAS"')],
        "the end of the file where a needs its ALIAS",
    ),
    ("log-stranger.log", LOG.replace(b"[]", b'["b"]'), "b is used before it is made"),
    ("log-huge.log", LOG.replace(b'"8"', b'"8888888888888888888"'), "line 2: MEMORY = 8888888888888888888"),
    ("log-digits.log", LOG.replace(b'"5"', '"\u0665"'.encode()), "line 1: TIME = "),
    ("log-nan.log", LOG.replace(b'"5"', b"NaN"), "NaN is not a JSON number"),
    ("log-deep.log", LOG.replace(b"[]", b"[" * 999 + b"]" * 999), "nested too deeply"),
    ("log-object.log", LOG.replace(b'["a"]', b'{"a": 1}'), "RESULT is dict"),
    ("sheet-blocks.json", SHEET.replace(b"3}", b"1000000000}"), "num_blocks = 1000000000"),
    ("sheet-half.json", SHEET.replace(b'"hidden": 8, ', b""), "hidden = None"),
    ("sheet-nan.json", SHEET.replace(b'"hidden": 8', b'"hidden": NaN'), "NaN is not a JSON number"),
    ("sheet-true.json", SHEET.replace(b'"hidden": 8', b'"hidden": true'), "hidden = True"),
]

#: (name, content, format)
ODD_TRACES: list[tuple[str, bytes, str]] = [
    ("scenario-without-requests.json", scenario(rate=0), "serving-scenario"),
    ("scenario-in-bursts.json", scenario(arrivals="gamma", cv=1000), "serving-scenario"),
    (
        "one-operator-that-stays.json",
        b'{"uplink": 1, "downlink": 1, "operators": [{"name": "a", "device": 0, "stays": true}]}',
        "device-cloud",
    ),
    ("one-forward-pass.json", on_a_cpu(), "kineto"),
    ("no-shapes.json", on_a_cpu(memory_events=False, shapes=False), "kineto"),
    ("worker.pt.trace.json.gz", gzip.compress(on_a_gpu(), mtime=0), "kineto"),
    ("snapshot.pickle", pickled(snapshot()), "memory-snapshot"),
    ("snapshot-of-python-2.pickle", pickled(snapshot(), 2), "memory-snapshot"),
    ("snapshot-as-text.pickle", pickled(snapshot(), 0), "memory-snapshot"),
    ("snapshot.json", json.dumps(snapshot()).encode(), "memory-snapshot"),
    (
        "no-history.pickle.gz",
        gzip.compress(pickled({**snapshot(), "device_traces": []}), mtime=0),
        "memory-snapshot",
    ),
    ("chakra.0.et", training(), "chakra"),
    ("chakra.0.json", as_graph(), "chakra"),
    ("profile.txt", PROFILE, "pipedream"),
    ("profile-of-windows.txt.gz", gzip.compress(PROFILE.replace(b"\n", b"\r\n"), mtime=0), "pipedream"),
    ("sheet.json", SHEET, "calculon-model"),
    ("op.log", LOG, "dtr-log"),
    ("op-of-windows.log", LOG.replace(b"\n", b"\r\n").replace(b'"5"', b"5"), "dtr-log"),
]
