"""Files that a spec's options name reach the trial as the project's own, and leave in the outcome by name and
hash.
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile

from tests.webapp.cast import Cast, make_cast
from webapp.artifacts.models import Artifact
from webapp.artifacts.services import store_upload
from webapp.runs.models import Run
from workers import sandbox
from workers.dispatcher import register
from workers.supervisor import Supervisor

pytestmark = pytest.mark.django_db(transaction=True)

REQUESTS = b"arrival,prompt,output\n0,10,5\n1,10,5\n"
TINY = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 1000,
    "max_position_embeddings": 128,
}


@pytest.fixture
def cast(settings, tmp_path: Path) -> Cast:  # type: ignore[no-untyped-def]
    settings.MEDIA_ROOT, settings.BLOB_CACHE = tmp_path / "files", tmp_path / "cache"
    settings.VAR = tmp_path
    return make_cast()


def upload(cast: Cast, name: str, content: bytes) -> Artifact:
    return store_upload(cast.project, cast.max, name, ContentFile(content))


def carry_out(run: Run) -> Run:
    slot = Supervisor(register(1, []), [], sandbox.best_tier(), 2**31, threads=1)
    slot.drain()
    run.refresh_from_db()
    return run


def serving(cast: Cast, trace: Artifact, **options: Any) -> Run:
    spec = {
        "family": "serving",
        "policy": "orca",
        "knobs": {},
        "workload": {"source": f"artifact:{trace.pk}", "format": "auto", "options": options},
        "hardware": {"cluster": {"nodes": 1, "devices_per_node": 1, "device": "a100-40g"}},
        "mode": "simulated",
        "seed": 0,
    }
    same = {name: spec[name] for name in ("family", "policy", "mode", "seed")}
    return Run.objects.create(project=cast.project, artifact=trace, spec=spec, **same)


def profile() -> bytes:
    """A layer profile, which is no workload by itself."""
    layers = ("qkv_proj", "o_proj", "down_proj", "layernorm", "embedding", "final_layernorm")
    texts = {
        "dense.csv": "layer,tokens,time_us\n" + "".join(f"{name},1,2\n{name},64,9\n" for name in layers),
        "per_sequence.csv": "layer,sequences,time_us\nlm_head,1,3\nsampler,1,1\n",
        "attention.csv": "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n0,0,1,16,2\n16,0,0,0,3\n",
    }
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, text in texts.items():
            archive.writestr(f"tp1/{name}", text)
    return held.getvalue()


def test_an_uploaded_model_serves_the_trace_and_a_side_file_goes_along(cast: Cast) -> None:
    trace = upload(cast, "trace.csv", REQUESTS)
    model = upload(cast, "my tiny model.json", json.dumps(TINY).encode())
    side = upload(cast, "tp1.zip", profile())
    run = carry_out(serving(cast, trace, model=f"artifact:{model.pk}", extra=f"artifact:{side.pk}"))
    assert (run.state, run.reason) == ("succeeded", "")
    outcome = run.document.outcome
    served = outcome["provenance"]["served"]
    assert served["model"]["name"] == "my_tiny_model"
    assert served["model"]["layers"] == 2
    told = outcome["spec"]["workload"]
    assert told["source"] == f"trace.csv@{trace.blob_id}"
    assert told["options"]["model"] == f"my tiny model.json@{model.blob_id}"
    assert told["options"]["extra"] == f"tp1.zip@{side.blob_id}"
    side.refresh_from_db()
    assert side.state == Artifact.State.REJECTED


@pytest.mark.parametrize("option", ["model", "extra"])
def test_a_path_that_got_into_the_database_opens_nothing(cast: Cast, tmp_path: Path, option: str) -> None:
    secret = tmp_path / "config.json"
    secret.write_text(json.dumps(TINY))
    run = carry_out(serving(cast, upload(cast, "trace.csv", REQUESTS), **{option: str(secret)}))
    assert run.state == "failed"
    assert run.reason.startswith(f"{option}: '{tmp_path}"[:40])
    assert run.reason.endswith("is not an artifact of this project")


def test_the_labs_own_side_file_reaches_the_trial_by_its_name(cast: Cast) -> None:
    """Two operators of Roller's list, with the times that its release has for them."""
    listed = upload(cast, "two.txt", b"M0 matmul m=65536 n=2 k=1024\nE0 elementwise shape=128x1008x42x42\n")
    options = {"extra": "package:roller-times-v100.txt"}
    spec = {
        "family": "compilation",
        "policy": "roller",
        "knobs": {},
        "workload": {"source": f"artifact:{listed.pk}", "format": "auto", "options": options},
        "hardware": "v100-16g",
        "mode": "simulated",
        "seed": 0,
    }
    same = {name: spec[name] for name in ("family", "policy", "mode", "seed")}
    run = carry_out(Run.objects.create(project=cast.project, artifact=listed, spec=spec, **same))
    assert (run.state, run.reason) == ("succeeded", "")
    outcome = run.document.outcome
    assert outcome["metrics"]["speedup_over_ansor"]["value"] > 0
    assert outcome["spec"]["workload"]["options"]["extra"] == "package:roller-times-v100.txt"


def test_a_scenario_comes_as_one_upload_with_the_files_that_it_names(cast: Cast) -> None:
    """A browser has no folder next to an upload: the archive has both."""
    rows = "batch,latency(us),std(us),memory(B)\n1,6000,20,1000\n4,12000,20,2500\n"
    overheads = "Preprocess latency\nmean(us),std(us)\n500,10\nPostprocess latency\nmean(us),std(us)\n40,10\n"
    model = {"name": "a", "slo": 0.1, "rate": 20, "profile_file": "tiny.txt"}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("scenario.json", json.dumps({"duration": 5, "models": [model]}))
        archive.writestr("tiny.txt", f"caffe:tiny:1\nTITAN_X_(Pascal)\nForward latency\n{rows}{overheads}")
    made = serving(cast, upload(cast, "scenario.zip", packed.getvalue()))
    made.policy = made.spec["policy"] = "nexus"
    made.save()
    ended = carry_out(made)
    assert ended.artifact is not None and ended.artifact.format == "serving-scenario"
    assert ended.state == Run.State.SUCCEEDED, ended.reason
    assert ended.metrics.get(name="slo_attainment").value == 1
