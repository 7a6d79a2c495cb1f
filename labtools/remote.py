"""`./lab run` and `./lab import`: hand a spec or an outcome to a server over its REST API.

The team's token comes from the environment variable LAB_TOKEN, so that it stands in no shell history;
LAB_PROJECT names the project where the team has several.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labtools.problems import Problem
from labtools.progress import ProgressLine

ASK_EVERY = 1.0  # seconds
#: For which a batch waits for a server that is away (seconds).
PATIENCE = 180.0
ENDED = ("succeeded", "infeasible", "failed", "cancelled", "rejected")
# The exit codes of `python -m experiments run`, for a run that was carried out elsewhere.
EXIT_CODES = {"succeeded": 0, "infeasible": 3, "rejected": 2}


class Away(Problem):
    """The server could not be reached; later it may."""


@dataclass(frozen=True)
class Server:
    """A lab's REST API, spoken to with a team's token."""

    url: str
    token: str
    project: str = ""

    @classmethod
    def at(cls, url: str) -> Server:
        token = os.environ.get("LAB_TOKEN", "")
        if not token:
            raise Problem("LAB_TOKEN is not set", "make a token on the team's page and export LAB_TOKEN=...")
        if not url.startswith(("http://", "https://")):
            raise Problem(f"{url!r} is not a server's address", "--server https://lab.example.org")
        return cls(url.rstrip("/"), token, os.environ.get("LAB_PROJECT", ""))

    def get(self, path: str) -> Any:
        return self._ask(urllib.request.Request(f"{self.url}{path}"))

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        headers = {"Content-Type": "application/json"}
        data = json.dumps(body).encode()
        query = f"?project={urllib.parse.quote(self.project)}" if self.project else ""
        return self._ask(urllib.request.Request(f"{self.url}{path}{query}", data, headers, method="POST"))

    def download(self, path: str) -> bytes:
        """The bytes of a file."""
        return self._open(urllib.request.Request(f"{self.url}{path}"))

    def _ask(self, request: urllib.request.Request) -> Any:
        try:
            return json.loads(self._open(request))
        except ValueError as error:
            raise Problem(f"{self.url} did not answer with JSON", "is this the address of a lab?") from error

    def _open(self, request: urllib.request.Request) -> bytes:
        request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                found: bytes = response.read()
                return found
        except urllib.error.HTTPError as error:
            if error.code in (502, 503, 504):
                raise Away(f"{self.url} is away ({error.code})", "try again in a moment") from error
            raise _explain_refusal(error) from error
        except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
            reason = getattr(error, "reason", error)
            raise Away(f"{self.url} does not answer: {reason}", "check --server and the network") from error


def run(spec_file: Path, url: str) -> int:
    """Submit the spec, follow the run, print its outcome; exit code 0 where it succeeded, 3 where it does not
    fit.
    """
    server = Server.at(url)
    submitted = server.post("/api/v1/runs", read_json(spec_file))
    line = ProgressLine()
    while (current := server.get(f"/api/v1/runs/{submitted['id']}"))["state"] not in ENDED:
        line.show(describe(current))
        time.sleep(ASK_EVERY)
    line.close(describe(current))
    print(json.dumps(current.get("outcome"), indent=1))
    return EXIT_CODES.get(current["state"], 1)


def import_outcomes(files: Sequence[Path], url: str) -> int:
    """Upload outcomes that were computed where the server's database cannot be reached.

    What was handed in is written down next to each file: a batch that was cut goes on where it was when the
    command is said again. An outcome that comes twice is one run.
    """
    server = Server.at(url)
    for file in files:
        receipt = file.with_name(f"{file.name}.stored")
        content = read_json(file)
        about = f"{url.rstrip('/')} {hashlib.sha256(file.read_bytes()).hexdigest()} "
        known = receipt.read_text() if receipt.exists() else ""
        if not known.startswith(about):
            receipt.write_text(f"{about}{_hand_in(server, content)}\n")
        print(f"{file}: stored as run {receipt.read_text().split()[-1]}", flush=True)
    return 0


def _hand_in(server: Server, outcome: Mapping[str, Any]) -> str:
    """The run's id. A server that is away is asked again for some minutes."""
    give_up = time.monotonic() + PATIENCE
    while True:
        try:
            return str(server.post("/api/v1/outcomes", outcome)["id"])
        except Away:
            if time.monotonic() > give_up:
                raise
            time.sleep(ASK_EVERY)


def describe(current: Mapping[str, Any]) -> str:
    progress = current.get("progress")
    share = f" {progress:.0%}" if isinstance(progress, (int, float)) else ""
    return f"run {current['id']}: {current['state']}{share}"


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise Problem(f"there is no file {path}", "give the path of a JSON file") from error
    except ValueError as error:
        raise Problem(
            f"{path} is not JSON: {error}", "make it with: python -m experiments run --out"
        ) from error
    if not isinstance(content, dict):
        raise Problem(f"{path} does not hold a JSON object", "see the contracts in docs/operations.md")
    return content


def _explain_refusal(error: urllib.error.HTTPError) -> Problem:
    text = error.read(2000).decode(errors="replace")
    try:
        reason = json.loads(text).get("detail", text)
    except (ValueError, AttributeError):
        reason = error.reason
    remedies = {401: "check LAB_TOKEN", 403: "this token may not do that: ask a team admin for another"}
    return Problem(
        f"the server refused ({error.code}): {reason}",
        remedies.get(error.code, "correct the file and try again"),
    )
