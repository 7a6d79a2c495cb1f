"""A TCP proxy between a host and its lab that can be cut, made slow and made late."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

CHUNK = 2**14


class Proxy:
    """Passes on to ``target``; ``delay`` in seconds one way, ``rate`` in bytes/s each way (0: no limit)."""

    def __init__(self, target: tuple[str, int], delay: float = 0.0, rate: float = 0.0) -> None:
        self.target, self.delay, self.rate = target, delay, rate
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.passed = 0
        self._cut, self._flows = threading.Event(), threading.Event()
        self._flows.set()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End all connections and take no more of them."""
        self._cut.set()
        for each in list(self._open):
            _end(each)

    def freeze(self) -> None:
        """Pass nothing on any more and end nothing: what a network does that lost a connection half."""
        self._flows.clear()

    def mend(self) -> None:
        self._cut.clear()
        self._flows.set()

    def close(self) -> None:
        self.cut()
        _end(self.listener)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                if self.listener.fileno() < 0:
                    return
                continue  # whoever asked has gone again
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        if self._cut.is_set():
            _end(client)
            return
        try:
            server = socket.create_connection(self.target)
        except OSError:
            _end(client)
            return
        self._open += [client, server]
        for source, into in ((client, server), (server, client)):
            threading.Thread(target=self._pour, args=(source, into), daemon=True).start()

    def _pour(self, source: socket.socket, into: socket.socket) -> None:
        """What was read at one time is passed on ``delay`` later, in order, and no faster than ``rate``."""
        try:
            while chunk := source.recv(CHUNK):
                pause = self.delay + (len(chunk) / self.rate if self.rate else 0)
                if pause:
                    time.sleep(pause)
                self._flows.wait()
                into.sendall(chunk)
                self.passed += len(chunk)
        except OSError:
            pass
        for each in (source, into):
            _end(each)
            with contextlib.suppress(ValueError):  # the other direction has ended too
                self._open.remove(each)


def _end(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
