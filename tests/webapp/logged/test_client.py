"""Programs that log to a real server: over a network that breaks, killed, offline, and by decorator."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.client import Away, Lab, LabError, Server, own_run
from experiments.client.log_file import SUFFIX, left_behind
from experiments.client.sender import Sender, Transfer, send_left
from labtools import remote
from tests.proxy import Proxy
from tests.webapp.browser import serving
from tests.webapp.cast import Place
from webapp.accounts.models import Role
from webapp.api.services import make_token
from webapp.history.models import TAG
from webapp.logged import points, records
from webapp.logged.models import Series
from webapp.runs.models import LONGEST_METRIC, Run

pytestmark = pytest.mark.django_db(transaction=True)

#: A program of somebody's own: logs until it is killed, and says how far it is.
ENDLESS = """
import sys
from experiments.client import Lab
with Lab(folder=sys.argv[1]).log("endless", params={"lr": 0.1}) as run:
    for step in range(10**9):
        run.log(step, loss=1 / (1 + step))
        if step % 1000 == 0:
            print(step, flush=True)
"""


@pytest.fixture
def server(ada: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    monkeypatch.setattr("experiments.client.own_run.PATIENCE", 240.0)  # a machine may have much else to do
    _, secret = make_token(ada.project.team, ada.user, "program", Role.MEMBER)
    with serving() as address:
        yield Server(address, secret)


@pytest.fixture
def lab(server: Server, tmp_path: Path) -> Lab:
    return Lab(server.url, server.token, folder=tmp_path / "logs")


def stored_points(name: str = "loss") -> points.Points:
    series = Series.objects.get(name=name)
    return points.read([series.pk])[series.pk]


def test_a_run_is_logged_by_the_way(lab: Lab) -> None:
    with lab.log("net", params={"optimizer": {"lr": 0.1}, "layers": (1, 2)}, tags=["a"], seed=5) as run:
        for step in range(100):
            run.log(step, {"val/loss": math.nan if step == 7 else 1.0}, loss=0.5)
        run.progress(3, 4, "epoch 3")
        run.tag("b")
    assert stored_points().steps == list(range(100))
    assert math.isnan(stored_points("val/loss").values[7])
    made = Run.objects.get(pk=run.id)
    assert made.state == "succeeded" and made.seed == 5
    assert made.spec["knobs"] == {"optimizer.lr": 0.1, "layers": "(1, 2)"}
    assert sorted(tag.name for tag in made.tags.all()) == ["a", "b"]
    environment = made.logged.environment
    assert environment["revision"] and environment["command"].startswith("python")
    memory = stored_points("memory/host_peak_memory")
    assert {memory.steps[0], memory.steps[-1]} == {0, 99} and 1e6 < memory.values[0] <= memory.values[-1]
    assert list(lab.folder.iterdir()) == [] if lab.folder else False
    assert [row["policy"] for row in lab.runs("metric.val/loss = 1")] == ["net"]
    assert lab.points(str(run.id), "loss")["values"] == [0.5] * 100
    assert lab.results("tag = a")[0]["loss"] == 0.5


def test_how_a_program_ends_is_how_its_run_ends(lab: Lab) -> None:
    with pytest.raises(ZeroDivisionError), lab.log("broken"):
        _ = 1 / 0
    with pytest.raises(KeyboardInterrupt), lab.log("interrupted"):
        raise KeyboardInterrupt

    @lab.log("decorated", params={"depth": 2}, experiment="of functions")
    def train(rate: float, run: Any, width: int = 64) -> float:
        run.log(0, loss=rate)
        return rate

    assert train(0.1) == 0.1 and train(rate=0.2, width=32) == 0.2
    told = {run.policy: run for run in Run.objects.exclude(policy="decorated")}
    assert told["broken"].state == "failed" and "ZeroDivisionError" in told["broken"].reason
    assert told["interrupted"].state == "cancelled"
    twice = Run.objects.filter(policy="decorated", state="succeeded").order_by("queued_at")
    assert [run.spec["knobs"] for run in twice] == [
        {"depth": 2, "rate": 0.1, "width": 64},
        {"depth": 2, "rate": 0.2, "width": 32},
    ]
    assert len({run.experiment_id for run in twice}) == 1


@pytest.mark.parametrize(
    ("step", "values", "remedy"),
    [
        (-1, {"loss": 1.0}, "at least 0"),
        (0, {"loss": "low"}, "log numbers"),
        (0, {"loss (ema)": 1.0}, "as train/loss"),
        (0, {"x" * 61: 1.0}, "60 characters"),
    ],
)
def test_what_a_server_would_refuse_is_told_where_it_is_logged(
    lab: Lab, step: int, values: dict[str, Any], remedy: str
) -> None:
    with pytest.raises(LabError) as caught, lab.log("x") as run:
        run.log(step, values)
    assert remedy in caught.value.remedy
    with pytest.raises(LabError, match="not open"):
        run.log(0, loss=1.0)
    assert Run.objects.get().state == "failed"


def test_client_and_server_have_the_same_rules() -> None:
    assert own_run.TAG.pattern == TAG.pattern
    assert own_run.LONGEST_FIGURE == LONGEST_METRIC
    assert (own_run.MOST_PARAMS, own_run.MOST_TAGS) == (records.MOST_PARAMS, records.MOST_TAGS)


def test_files_are_whole_kept_apart_and_no_reason_to_stop(
    server: Server, ada: Place, tmp_path: Path, settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two of one name, and one that is too large; in a project that is named."""
    settings.UPLOAD_MAX_BYTES = 1000
    lab = Lab(server.url, server.token, ada.project.slug, folder=tmp_path / "logs")
    files = [tmp_path / name / "trace.json" for name in ("a", "b", "c")]
    with lab.log("files") as run:
        for file, size in zip(files, (10, 20, 2000), strict=True):
            file.parent.mkdir()
            file.write_text("x" * size)
            run.attach(file)
        while run.file is not None and list(run.file.files.glob("*")):
            time.sleep(0.05)
        run.log(0, loss=1.0)
    made = Run.objects.get(kind="logged")
    assert made.state == "succeeded" and stored_points().values == [1.0]
    kept = {one.name: one.blob.size for one in made.logged.files.all() if one.blob}
    assert kept == {"trace.json": 10, "trace-2.json": 20}
    assert "trace-3.json is not sent" in capsys.readouterr().err


def test_what_a_torch_program_has_is_a_number(lab: Lab) -> None:
    torch = pytest.importorskip("torch")
    with lab.log("torch") as run:
        run.log(torch.tensor(3), loss=torch.tensor(0.25), ratio=torch.tensor([0.5]).numpy()[0])
    assert (stored_points().steps, stored_points().values, stored_points("ratio").values) == (
        [3],
        [0.25],
        [0.5],
    )


def test_a_network_that_breaks_again_and_again_loses_and_doubles_nothing(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections are cut while bodies are under way and while answers are."""
    monkeypatch.setattr("experiments.client.sender.SEND_EVERY", 0.02)
    monkeypatch.setattr("experiments.client.sender.LONGEST_PAUSE", 0.1)
    monkeypatch.setattr("experiments.client.server.PATIENCE", 3.0)  # a connection may be cut half
    host, port = server.url.removeprefix("http://").split(":")
    proxy = Proxy((host, int(port)), delay=0.002)
    lab = Lab(f"http://127.0.0.1:{proxy.port}", server.token, folder=tmp_path)
    broken = threading.Event()

    def break_it() -> None:
        while not broken.wait(0.05):
            proxy.cut()
            time.sleep(0.03)
            proxy.mend()

    breaker = threading.Thread(target=break_it)
    breaker.start()
    with lab.log("shaken") as run:
        for step in range(6000):
            run.log(step, loss=float(step))
            if step % 100 == 0:
                time.sleep(0.03)
        broken.set()
        breaker.join()
        proxy.mend()
        assert run.end(patience=120)
    proxy.close()
    assert stored_points().steps == list(range(6000))
    assert stored_points().values == [float(step) for step in range(6000)]
    assert Run.objects.get().state == "succeeded"


def test_a_program_that_is_killed_loses_no_point_that_it_logged(server: Server, tmp_path: Path) -> None:
    environment = {**os.environ, "LAB_SERVER": server.url, "LAB_TOKEN": server.token}
    command = [sys.executable, "-c", ENDLESS, str(tmp_path)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        for line in program.stdout:
            if int(line) >= 30_000:
                break
        assert list(left_behind(tmp_path)) == [], "what a program holds is not left behind"
        program.send_signal(signal.SIGKILL)
    (path,) = tmp_path.glob(f"*{SUFFIX}")
    whole = [json.loads(line) for line in path.read_bytes().split(b"\n")[1:-1]]
    steps = [record[0] for record in whole if isinstance(record, list)]
    assert len(steps) > 30_000
    with path.open("ab") as file:
        file.write(b'[7, 1.0, {"los')  # as a machine leaves it that went down
    fates = send_left(tmp_path, server)
    assert list(fates.values()) == ["sent"] and list(tmp_path.iterdir()) == []
    assert stored_points().steps == steps
    run = Run.objects.get()
    assert run.state == "failed" and "without a word" in run.reason


FORKING = """
import os, sys
from experiments.client import Lab
run = Lab(folder=sys.argv[1]).log("forking").begin()
run.log(0, loss=1.0)
if os.fork() == 0:
    sys.exit(0)
os.wait()
run.log(1, loss=0.5)
run.end(patience=240)
"""


def test_a_process_that_a_program_forks_does_not_end_its_run(server: Server, tmp_path: Path) -> None:
    environment = {**os.environ, "LAB_SERVER": server.url, "LAB_TOKEN": server.token}
    subprocess.run([sys.executable, "-c", FORKING, str(tmp_path)], env=environment, check=True, timeout=120)
    assert stored_points().steps == [0, 1] and Run.objects.get().state == "succeeded"


def test_a_host_without_a_server_keeps_its_logs_until_they_are_sent(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("LAB_SERVER", raising=False)
    trace = tmp_path / "trace.json"
    trace.write_text("{}")
    folder = tmp_path / "logs"
    with Lab(folder=folder).log("offline") as run:
        run.log(0, loss=1.0)
        run.attach(trace)
    assert "./lab sync sends it" in capsys.readouterr().err and not Run.objects.exists()
    trace.unlink()
    monkeypatch.setenv("LAB_TOKEN", server.token)
    assert remote.sync(folder, server.url) == 0
    assert "1 of 1 logs" in capsys.readouterr().out and list(folder.iterdir()) == []
    made = Run.objects.get(kind="logged")
    assert made.state == "succeeded" and stored_points().values == [1.0]
    assert [file.name for file in made.logged.files.all()] == ["trace.json"]
    assert remote.sync(folder, server.url) == 0


def test_logs_for_another_server_and_refused_ones_stay(server: Server, tmp_path: Path) -> None:
    other = Lab("http://127.0.0.1:9", "lab_x", folder=tmp_path / "held").log("elsewhere").begin()
    assert other.end(patience=0.1) is False
    assert send_left(tmp_path / "held", server) == {}, "its program goes on trying"
    left = tmp_path / "left"
    shutil.copytree(tmp_path / "held", left)
    assert send_left(left, server) == {str(other.id): "is for http://127.0.0.1:9"}
    (left / f"{other.id}.json").write_text("{}")
    (left / f"{other.id}{SUFFIX}").write_text('{"else": 1}\n')
    assert "a log begins with begin" in send_left(left, server)[str(other.id)]
    assert len(list(left.glob("*"))) == 2


def test_who_asks_it_on_its_page_to_stop_is_heard(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.client.sender.HEARTBEAT", 0.0)
    with lab.log("long") as run:
        run.log(0, loss=1.0)
        while not Run.objects.filter(pk=run.id).exists():
            time.sleep(0.05)
        assert not run.should_stop
        Run.objects.filter(pk=run.id).update(cancel_requested=True)
        until = time.monotonic() + 60
        while not run.should_stop and time.monotonic() < until:
            time.sleep(0.05)
        assert run.should_stop


def test_a_token_that_may_only_read_is_told_once_and_the_program_goes_on(
    server: Server, ada: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, secret = make_token(ada.project.team, ada.user, "reader", Role.VIEWER)
    with Lab(server.url, secret, folder=tmp_path).log("refused") as run:
        run.log(0, loss=1.0)
        assert isinstance(run.sender, Sender) and isinstance(run.sender.transfer, Transfer)
        run.sender.done.wait(30)
        run.log(1, loss=1.0)
    told = capsys.readouterr().err
    assert told.count("is not sent") == 1 and "needs a token with the role member" in told
    assert len(list(tmp_path.glob(f"*{SUFFIX}"))) == 1


def test_what_is_submitted_while_the_server_is_away_is_made_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sent again with the same key, and no longer than the pauses last."""
    keys: list[str] = []

    def away(self: Server, request: Any) -> bytes:
        keys.append(request.get_header("Idempotency-key"))
        if len(keys) < 3:
            raise Away("cut", "try again")
        return b'{"runs": []}'

    monkeypatch.setattr(Server, "_open", away)
    monkeypatch.setattr("experiments.client.server.PAUSES", (0.0, 0.0, 0.0))
    assert Lab("http://lab", "lab_x").submit({"family": "memory"}) == []
    assert len(keys) == 3 and len(set(keys)) == 1 and keys[0]
    monkeypatch.setattr(Server, "_open", lambda *_: (_ for _ in ()).throw(Away("cut", "try again")))
    with pytest.raises(Away):
        Lab("http://lab", "lab_x").submit({"family": "memory"})


def test_runs_are_submitted_and_files_go_up_and_down(lab: Lab, tmp_path: Path) -> None:
    spec = {
        "family": "memory",
        "policy": "baseline",
        "workload": {"source": "zoo:vgg16", "options": {"batch": 4}},
        "hardware": "t4-16g",
    }
    (run,) = lab.submit(spec, name="one")
    assert run["state"] == "queued" and lab.run(run["id"])["policy"] == "baseline"
    with pytest.raises(LabError, match="422") as caught:
        lab.submit({**spec, "policy": "nothing"})
    assert "baseline" in caught.value.remedy
    Run.objects.filter(pk=run["id"]).update(state="failed")
    assert [ended["state"] for ended in lab.wait([run], every=0.01)] == ["failed"]
    file = tmp_path / 'a "b".csv'
    file.write_text("time,gpus\n")
    made = lab.upload(file, wait=False)
    assert lab.download(made["sha256"], tmp_path / "back").read_text() == "time,gpus\n"
