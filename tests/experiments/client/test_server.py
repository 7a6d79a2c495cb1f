"""What a program hears of a lab whose answers break off on the way."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from experiments.client import Away, Server


@contextmanager
def answering(text: bytes) -> Iterator[str]:
    """A lab that answers ``text`` to one request and ends the connection; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            taken, _ = listener.accept()
            with taken:
                taken.recv(65536)
                taken.sendall(text)
                taken.shutdown(socket.SHUT_WR)
                while taken.recv(65536):
                    pass

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(10)


@pytest.mark.parametrize("status", ["200 OK", "409 Conflict"])
@pytest.mark.parametrize("came", [b"", b'{"offset": '])
def test_an_answer_that_breaks_off_is_a_lab_that_is_away(status: str, came: bytes) -> None:
    """Whoever sends a log tries again then; what ends its thread would stop it for good."""
    head = f"HTTP/1.1 {status}\r\nContent-Length: 92\r\n\r\n".encode()
    with answering(head + came) as url, pytest.raises(Away, match="does not answer"):
        Server(url, "token").send("/api/v1/logs/1", b"x", "application/x-ndjson")


def test_a_line_that_is_no_answer_is_a_lab_that_is_away() -> None:
    with answering(b"what?\r\n\r\n") as url, pytest.raises(Away, match="does not answer"):
        Server(url, "token").download("/x")
