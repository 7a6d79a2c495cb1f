"""The lab's files as a joined host has them: fetched and handed in by hash, over the web app.

A connection that breaks goes on at the byte where it was; ``OSError`` once nothing came for ``PATIENCE``.
"""

from __future__ import annotations

import http.client
import io
import json
import ssl
import time
import urllib.error
import urllib.request
from pathlib import PurePosixPath
from typing import IO, Any, cast

from django.core.files.base import File
from django.core.files.storage import Storage
from django.utils.deconstruct import deconstructible

#: Of one request, and without a byte altogether (seconds).
TIMEOUT, PATIENCE = 30.0, 180.0
#: Between two tries (seconds).
PAUSE = 1.0
PIECE = 4 * 2**20
#: Answers of a web app, or of what stands in front of it, that is away for a moment.
AWAY = (429, 500, 502, 503, 504)


class RefusedByLab(OSError):
    """The lab answered, and will not do it: this host's token was revoked, or the file is too large."""


@deconstructible
class RemoteFiles(Storage):
    """``url`` is the lab's, ``certificate`` a file with what its own is checked against ("" for the
    system's).
    """

    def __init__(self, url: str, token: str, certificate: str = "") -> None:
        self._lab, self._token = url.rstrip("/"), token
        self._context = trust(certificate)

    def _open(self, name: str, mode: str = "rb") -> File[bytes]:
        return File(cast("IO[bytes]", RemoteFile(self, PurePosixPath(name).name)), name)

    def _save(self, name: str, content: Any) -> str:
        """In pieces; where the lab already has some of it, from there on."""
        sha256, size, at, stored = PurePosixPath(name).name, content.size, 0, False
        while not stored:
            content.seek(at)
            piece = content.read(PIECE)
            address = f"{sha256}?offset={at}&size={size}"
            answer = patiently(lambda address=address, piece=piece: self.ask("PUT", address, piece))
            stored = answer.status == 201
            at = int(json.load(answer)["received"])
        return name

    def exists(self, name: str) -> bool:
        try:
            self.size(name)
        except FileNotFoundError:
            return False
        return True

    def size(self, name: str) -> int:
        answer = patiently(lambda: self.ask("HEAD", PurePosixPath(name).name))
        return int(answer.headers["Content-Length"])

    def get_available_name(self, name: str, max_length: int | None = None) -> str:
        return name  # the name is the content's hash

    def ask(self, method: str, what: str, body: bytes | None = None, **headers: str) -> Any:
        """The answer, whose status may be 409; ``FileNotFoundError`` or ``RefusedByLab`` where it is no."""
        told = {"Authorization": f"Bearer {self._token}", **headers}
        request = urllib.request.Request(f"{self._lab}/hosts/files/{what}", body, told, method=method)
        try:
            return urllib.request.urlopen(request, timeout=TIMEOUT, context=self._context)
        except urllib.error.HTTPError as error:
            if error.code == 409:
                return error
            if error.code == 404:
                raise FileNotFoundError(f"the lab has no file {what[:64]}") from None
            if error.code not in AWAY:
                raise RefusedByLab(f"the lab refuses: {error.read(200).decode(errors='replace')}") from None
            raise


class RemoteFile(io.RawIOBase):
    """Reads one file of the lab from its beginning."""

    def __init__(self, storage: RemoteFiles, sha256: str) -> None:
        self._storage, self._sha256 = storage, sha256
        self._at, self._size = 0, storage.size(sha256)
        self._answer: Any = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = patiently(lambda: self._next(len(buffer))) if self._at < self._size else b""
        buffer[: len(chunk)] = chunk
        self._at += len(chunk)
        return len(chunk)

    def close(self) -> None:
        self._hang_up()
        super().close()

    def _next(self, most: int) -> bytes:
        try:
            if self._answer is None:
                self._answer = self._storage.ask("GET", self._sha256, Range=f"bytes={self._at}-")
            chunk: bytes = self._answer.read(min(most, self._size - self._at))
        except (OSError, http.client.HTTPException):
            self._hang_up()
            raise
        if not chunk:
            self._hang_up()
            raise ConnectionResetError(f"the connection ended at byte {self._at} of {self._size}")
        return chunk

    def _hang_up(self) -> None:
        if self._answer is not None:
            self._answer.close()
            self._answer = None


def trust(certificate: str) -> ssl.SSLContext:
    """What a lab's web app may show: a certificate that this system trusts, or the lab's own in that file."""
    context = ssl.create_default_context()
    if certificate:
        context.load_verify_locations(certificate)
    return context


def patiently(do: Any) -> Any:
    """The result of ``do``, tried again for ``PATIENCE`` while the network or the lab is away."""
    give_up = time.monotonic() + PATIENCE
    while True:
        try:
            return do()
        except (FileNotFoundError, RefusedByLab):
            raise
        except (OSError, http.client.HTTPException) as error:
            if time.monotonic() > give_up:
                raise ConnectionError(f"the lab does not answer: {error}") from error
            time.sleep(PAUSE)
