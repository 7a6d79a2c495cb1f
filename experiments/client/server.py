"""A lab's REST API, spoken to with a team's token. Standard library alone: `./lab` starts without any other.

The token comes from the environment variable LAB_TOKEN, so that it stands in no shell history; LAB_PROJECT
names the project where the team has several.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import shutil
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: For which an answer is waited for (seconds).
PATIENCE = 60.0
GATEWAYS = (502, 503, 504)
TOO_OFTEN = 429
#: Who asked too often waits as the server says, so often at most and for so many seconds at most.
HELD_BACK, LONGEST_WAIT = 5, 90.0
#: Before what is made once is sent again (seconds).
PAUSES = (1.0, 3.0, 9.0)


class LabError(Exception):
    """Something a person can act on: what is wrong, and what would help."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.args[0]}\n  -> {self.remedy}"


class Away(LabError):
    """The server could not be reached; later it may."""


class Refused(LabError):
    """The server will not have it.

    ``status`` and ``answer`` are those of HTTP, ``wait`` the seconds after which it may.
    """

    def __init__(self, status: int, answer: Mapping[str, Any], wait: float = 1.0) -> None:
        remedies = {401: "check LAB_TOKEN", 403: "this token may not do that: ask a team admin for another"}
        expected = answer.get("expected")
        remedy = f"expected: {expected}" if expected else "correct what was sent and try again"
        super().__init__(
            f"the server refused ({status}): {answer.get('detail', '')}", remedies.get(status, remedy)
        )
        self.status, self.answer, self.wait = status, answer, wait


@dataclass(frozen=True)
class Server:
    """A server's address and a team's token."""

    url: str
    token: str = field(repr=False)
    project: str = ""

    @classmethod
    def at(cls, url: str = "", token: str = "", project: str = "") -> Server:
        """What is not given comes from LAB_SERVER, LAB_TOKEN and LAB_PROJECT."""
        url, token = url or os.environ.get("LAB_SERVER", ""), token or os.environ.get("LAB_TOKEN", "")
        if not token:
            raise LabError("LAB_TOKEN is not set", "make a token on the team's page and export LAB_TOKEN=...")
        if not url.startswith(("http://", "https://")):
            raise LabError(f"{url!r} is not a server's address", "such as https://lab.example.org")
        return cls(url.rstrip("/"), token, project or os.environ.get("LAB_PROJECT", ""))

    def get(self, path: str, **query: Any) -> Any:
        return self._ask(self._request(path, query))

    def post(self, path: str, body: Any, in_project: bool = True) -> Any:
        """``body`` as JSON; ``in_project``: it makes something in the project."""
        return self.send(path, json.dumps(body).encode(), "application/json", in_project)

    def post_once(self, path: str, body: Any) -> Any:
        """The same of what must not be made twice: sent again where the server was away."""
        sent, key = json.dumps(body).encode(), {"Idempotency-Key": secrets.token_hex(16)}
        for pause in PAUSES:
            try:
                return self.send(path, sent, "application/json", headers=key)
            except Away:
                time.sleep(pause)
        return self.send(path, sent, "application/json", headers=key)

    def send(
        self,
        path: str,
        body: bytes,
        kind: str,
        in_project: bool = True,
        headers: Mapping[str, str] | None = None,
        **query: Any,
    ) -> Any:
        """``body`` as it is; ``in_project``: it makes something in the project."""
        named = {"project": self.project} if self.project and in_project else {}
        request = self._request(path, {**named, **query})
        request.data, request.method = body, "POST"
        request.add_header("Content-Type", kind)
        for name, value in (headers or {}).items():
            request.add_header(name, value)
        return self._ask(request)

    def upload(self, path: str, file: Path, name: str = "", headers: Mapping[str, str] | None = None) -> Any:
        """A file as a form has it."""
        border = secrets.token_hex(16)
        shown = (name or file.name).replace('"', "'").replace("\r", " ").replace("\n", " ")
        head = (
            f'--{border}\r\nContent-Disposition: form-data; name="file"; filename="{shown}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        )
        body = head.encode() + file.read_bytes() + f"\r\n--{border}--\r\n".encode()
        return self.send(path, body, f"multipart/form-data; boundary={border}", headers=headers)

    def download(self, path: str) -> bytes:
        """The bytes of a file."""
        return self._open(self._request(path, {}))

    def download_to(self, path: str, target: Path) -> None:
        """A file into ``target`` in pieces, so that one of gigabytes never stands in memory."""
        self._open(self._request(path, {}), target)

    def _request(self, path: str, query: Mapping[str, Any]) -> urllib.request.Request:
        told = urllib.parse.urlencode({name: value for name, value in query.items() if value is not None})
        return urllib.request.Request(f"{self.url}{path}{'?' if told else ''}{told}")

    def _ask(self, request: urllib.request.Request) -> Any:
        try:
            return json.loads(self._open(request))
        except ValueError as error:
            raise LabError(f"{self.url} did not answer with JSON", "is this the address of a lab?") from error

    def _open(self, request: urllib.request.Request, target: Path | None = None) -> bytes:
        """The answer, after waiting where the server says that it was asked too often.

        Empty where ``target`` takes it.
        """
        request.add_header("Authorization", f"Bearer {self.token}")
        for _ in range(HELD_BACK):
            try:
                return self._open_now(request, target)
            except Refused as refused:
                if refused.status != TOO_OFTEN:
                    raise
                time.sleep(refused.wait)
        return self._open_now(request, target)

    def _open_now(self, request: urllib.request.Request, target: Path | None) -> bytes:
        """The answer; ``Away`` where the network ends before the whole of it, or of a refusal, is there."""
        try:
            return self._read_answer(request, target)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise Away(
                f"{self.url} does not answer: {reason}", "check the address and the network"
            ) from error

    def _read_answer(self, request: urllib.request.Request, target: Path | None) -> bytes:
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                if target is None:
                    found: bytes = response.read()
                    return found
                with target.open("wb") as file:
                    shutil.copyfileobj(response, file)
                return b""
        except urllib.error.HTTPError as error:
            if error.code in GATEWAYS:
                raise Away(f"{self.url} is away ({error.code})", "try again in a moment") from error
            wait = _seconds_to_wait(error.headers.get("Retry-After", ""))
            raise Refused(error.code, _read_refusal(error), wait) from error


def _seconds_to_wait(told: str) -> float:
    """What ``Retry-After`` says in seconds; one where it says anything else."""
    return min(LONGEST_WAIT, float(told)) if told.isascii() and told.isdigit() else 1.0


def _read_refusal(error: urllib.error.HTTPError) -> dict[str, Any]:
    text = error.read().decode(errors="replace")
    try:
        answer = json.loads(text)
    except ValueError:
        return {"detail": text or error.reason}
    return answer if isinstance(answer, dict) else {"detail": text}
