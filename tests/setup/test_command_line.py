"""What a person reads when something is in the way, and what goes to a server."""

from __future__ import annotations

import errno
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from experiments.client.server import LabError
from labtools import command_line, preflight, remote, testing
from labtools.problems import Problem, from_operating_system

ROOT = Path(__file__).resolve().parents[2]


def lab(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "lab", *arguments], cwd=ROOT, capture_output=True, text=True)


def test_no_command_shows_the_commands() -> None:
    shown = lab("--help").stdout
    assert all(
        f"    {name} " in shown for name in ("up", "test", "status", "stop", "doctor", "run", "import")
    )


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["up", "--port", "0"], "'0' is not a port (1 to 65535)"),
        (["up", "--port", "web"], "'web' is not a port (1 to 65535)"),
        (["walks", "z"], "'z' is not a walk (a, b, c, d, e, f)"),
        (
            ["harden", "luck"],
            "'luck' is not a check (storage, database, restarts, kills,",
        ),
        (["up", "--workers", "0"], "'0' is not a number of workers (1 to 256)"),
        (["up", "--torch-index", "cpu"], "'cpu' is not the address of a package index (https://...)"),
        (["stop", "--now"], "unknown argument: --now"),
        (["run", "spec.json"], "the following arguments are required: --server"),
    ],
)
def test_a_wrong_argument_is_named_and_exits_with_two(arguments: list[str], reason: str) -> None:
    refused = lab(*arguments)
    assert refused.returncode == 2
    assert reason in refused.stderr


def test_arguments_that_test_does_not_know_go_to_pytest() -> None:
    arguments = ["test", "--fast", "-k", "orca", "tests/workers"]
    options, extra = command_line.parser().parse_known_args(arguments)
    assert options.fast
    assert extra == ["-k", "orca", "tests/workers"]


def test_the_launcher_still_compiles_for_old_pythons_to_tell_them_so() -> None:
    import ast

    ast.parse((ROOT / "lab").read_text(), feature_version=(3, 7))


def test_a_busy_port_is_told_with_a_free_one() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Problem, match=f"port {port} is used by another program") as caught:
            preflight.require_free_port(port)
    preflight.require_free_port(int(caught.value.remedy.removeprefix("./lab up --port ")))


def test_a_database_that_does_not_answer_is_told_without_its_password() -> None:
    with pytest.raises(Problem) as caught:
        preflight.require_database("postgresql://lab:hunter2@127.0.0.1:1/lab")
    assert "DATABASE_URL (postgresql://lab@127.0.0.1:1/lab): " in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["redis://:hunter2@127.0.0.1:1/0", "http://:hunter2@127.0.0.1:1/0"])
def test_a_broker_that_does_not_answer_is_told_without_its_password(url: str) -> None:
    with pytest.raises(Problem) as caught:
        preflight.require_redis(url)
    assert "hunter2" not in str(caught.value)


def test_errors_of_the_machine_are_told_and_errors_of_the_program_are_not() -> None:
    full = from_operating_system(OSError(errno.ENOSPC, "No space left on device", "/var/lab"))
    assert full is not None
    assert full.args[0] == "the disk is full: /var/lab"
    closed = from_operating_system(PermissionError(errno.EACCES, "Permission denied", "/srv/lab"))
    assert closed is not None
    assert closed.args[0] == "no permission: /srv/lab"
    assert from_operating_system(OSError(errno.EBADF, "Bad file descriptor")) is None


@pytest.mark.parametrize(
    ("output", "closing"),
    [
        ("....\n==== 4 passed, 1 skipped in 0.12s ====\n", "==== 4 passed, 1 skipped in 0.12s ===="),
        ("4 passed in 0.12s\n", "4 passed in 0.12s"),
        ("\x1b[32m\x1b[1m4 passed\x1b[0m\x1b[32m in 0.12s\x1b[0m\n", "4 passed in 0.12s"),
        ("1 failed, 2 errors in 75.30s (0:01:15)\nlast words\n", "1 failed, 2 errors in 75.30s (0:01:15)"),
        ("no tests ran in 0.01s\n", "no tests ran in 0.01s"),
        ("Segmentation fault\n", ""),
    ],
)
def test_pytests_closing_line_is_found(output: str, closing: str) -> None:
    assert testing.closing_line(output) == closing


def test_one_failed_step_fails_the_whole_and_the_closing_line_stands_last(
    capsys: pytest.CaptureFixture[str],
) -> None:
    results = [testing.Result("mypy", 2.0, 1), testing.Result("pytest", 3.5, 0, "7 passed in 3.50s")]
    assert testing.report(results, 4.1) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["total              4.1  FAILED: mypy", "7 passed in 3.50s"]
    assert testing.report(results[1:], 3.5) == 0


class Api(BaseHTTPRequestHandler):
    """A server whose run ends when it is asked for the second time."""

    asked: list[tuple[str, str, str]] = []
    #: So many requests to come are answered with 503.
    away = 0

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.asked.append((self.path, self.headers["Authorization"], body))
        if self.away:
            Api.away -= 1
            self.answer(503, {})
            return
        if self.headers["Authorization"] != "Bearer right":
            self.answer(401, {"detail": "no such token"})
            return
        self.answer(200, {"id": 7})

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Authorization"], ""))
        polls = sum(path == self.path for path, _, _ in self.asked)
        ended = {"id": 7, "state": "succeeded", "outcome": {"status": "ok"}}
        self.answer(200, ended if polls > 1 else {"id": 7, "state": "running", "progress": 0.5})

    def answer(self, code: int, body: dict[str, Any]) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Api, "asked", [])
    monkeypatch.setattr(Api, "away", 0)
    monkeypatch.setattr(remote, "ASK_EVERY", 0.01)
    monkeypatch.setenv("LAB_TOKEN", "right")
    api = HTTPServer(("127.0.0.1", 0), Api)
    thread = threading.Thread(target=api.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{api.server_port}"
    api.shutdown()
    thread.join()
    api.server_close()


def test_a_submitted_run_is_followed_to_its_outcome(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text('{"family": "memory"}')
    assert remote.run(spec, server + "/") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("run 7: running 50%\nrun 7: succeeded\n")
    assert json.loads(shown[shown.index("{") :]) == {"status": "ok"}
    assert Api.asked[0] == ("/api/v1/runs", "Bearer right", '{"family": "memory"}')


def test_a_batch_of_outcomes_waits_for_the_server_and_goes_on_where_it_was_cut(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = [tmp_path / f"{name}.json" for name in ("a", "b")]
    for outcome in outcomes:
        outcome.write_text(json.dumps({"status": outcome.stem}))
    monkeypatch.setattr(Api, "away", 2)
    assert remote.import_outcomes(outcomes[:1], server) == 0
    assert Api.asked == [("/api/v1/outcomes", "Bearer right", '{"status": "a"}')] * 3
    # Said again for the whole batch: the first is not sent again, unless it says something else now.
    assert remote.import_outcomes(outcomes, server) == 0
    assert [body for _, _, body in Api.asked[3:]] == ['{"status": "b"}']
    outcomes[0].write_text('{"status": "c"}')
    assert remote.import_outcomes(outcomes, server) == 0
    assert [body for _, _, body in Api.asked[4:]] == ['{"status": "c"}']
    monkeypatch.setattr(remote, "PATIENCE", 0)
    monkeypatch.setattr(Api, "away", 9)
    outcomes[1].write_text('{"status": "d"}')
    with pytest.raises(LabError, match=r"is away \(503\)"):
        remote.import_outcomes(outcomes, server)


def test_a_refused_token_says_what_the_server_said(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_TOKEN", "wrong")
    (tmp_path / "spec.json").write_text("{}")
    with pytest.raises(LabError, match=r"the server refused \(401\): no such token") as caught:
        remote.run(tmp_path / "spec.json", server)
    assert caught.value.remedy == "check LAB_TOKEN"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "is not JSON"),
        ("[]", "does not hold a JSON object"),
        ("\xff", "is not JSON"),
        (None, "there is no file"),
    ],
)
def test_a_bad_file_is_told_before_anything_is_sent(
    server: str, tmp_path: Path, content: str | None, reason: str
) -> None:
    spec = tmp_path / "spec.json"
    if content is not None:
        spec.write_text(content, encoding="latin-1")
    with pytest.raises(Problem, match=reason):
        remote.run(spec, server)
    assert Api.asked == []


def test_without_a_token_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAB_TOKEN", raising=False)
    with pytest.raises(LabError, match="LAB_TOKEN is not set"):
        remote.Server.at("http://127.0.0.1:1")


def test_a_server_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_TOKEN", "right")
    with pytest.raises(LabError, match=r"http://127\.0\.0\.1:1 does not answer: .*refused"):
        remote.Server.at("http://127.0.0.1:1").get("/api/v1/runs/1")
