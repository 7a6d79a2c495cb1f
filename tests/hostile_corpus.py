"""Bad files that must be refused with a reason that names the place, and odd files that must be accepted.

All are generated here; none is stored. Uploads through the web are tested with the same lists.
"""

from __future__ import annotations

import tarfile
from dataclasses import dataclass

import numpy as np

from tests.hostile_files import (
    GOOD_ROWS,
    HEADER,
    Bytes,
    config,
    deep_json,
    g10,
    gzip_bomb,
    gzipped,
    jobs,
    onnx_model,
    pickled,
    png,
    protobuf,
    pt2,
    raw,
    step_claiming,
    step_header,
    step_of,
    tar_device,
    tar_link,
    tar_lying,
    tar_many,
    tar_of,
    text,
    torch_checkpoint,
    zip_bomb,
    zip_nested,
    zip_of,
)
from tests.hostile_traces import BAD_TRACES, ODD_TRACES


@dataclass(frozen=True)
class BadFile:
    """``make`` gives the content; the refusal must contain ``fragment``. ``format``: named by the user, or
    auto.
    """

    name: str
    make: Bytes
    fragment: str
    format: str = "auto"


@dataclass(frozen=True)
class OddFile:
    """An unusual file that is valid: read as ``format`` with ``rows`` jobs or requests (``None``: not
    counted).
    """

    name: str
    make: Bytes
    format: str
    rows: int | None = None


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
