"""Sends a log's bytes in order, from where the server's part ends: once each, whatever breaks in between."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from experiments.client.log_file import LogFile, left_behind
from experiments.client.server import Away, LabError, Refused, Server

#: Seconds between two looks for new lines, and the longest pause while the server is away.
SEND_EVERY, LONGEST_PAUSE = 1.0, 60.0
#: After so many seconds without a line the server is told that the program lives.
HEARTBEAT = 60.0
APART = 409


class Transfer:
    """How far a log is sent. ``stop``: somebody asked the run to end on its page."""

    def __init__(self, server: Server, log: LogFile) -> None:
        self.server, self.log = server, log
        self.offset, self.stop = 0, False
        self.path = f"/api/v1/logs/{log.run}"

    def send_rest(self) -> None:
        """Send every whole line that the server has not; raises ``Away`` and ``Refused``."""
        while part := self.log.part(self.offset):
            self._send(part)
        for file in sorted(self.log.files.glob("*")):
            try:
                made = self.server.upload("/api/v1/artifacts", file)
                self.server.post(f"{self.path}/files", {"artifact": made["id"]}, in_project=False)
            except Refused as refusal:  # too large, say: the log goes on, and its program has the file
                sys.stderr.write(f"lab: {file.name} is not sent: {refusal}\n")
            file.unlink()

    def beat(self) -> None:
        """Say that the program lives."""
        if self.offset:
            self._send(b"")

    def _send(self, part: bytes) -> None:
        try:
            answer = self.server.send(self.path, part, "application/x-ndjson", offset=self.offset)
            self.offset, self.stop = answer["offset"], answer["stop"]
        except Refused as refusal:
            if refusal.status != APART:
                raise
            self.offset = refusal.answer["offset"]


class Sender:
    """A thread that sends what a run logs while it logs it."""

    def __init__(self, transfer: Transfer) -> None:
        self.transfer = transfer
        self.problem = ""
        self.ended, self.done = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._run, name="lab-sender", daemon=True)
        self.thread.start()

    def finish(self, patience: float) -> bool:
        """Send what is left, for at most ``patience`` seconds; whether the server has all."""
        self.ended.set()
        self.done.wait(patience)
        return self.done.is_set() and not self.problem

    def _run(self) -> None:
        pause, quiet, sent = SEND_EVERY, 0.0, 0
        while True:
            is_last = self.ended.wait(pause)
            try:
                self.transfer.send_rest()
                quiet = 0.0 if self.transfer.offset != sent else quiet + pause
                if quiet >= HEARTBEAT:
                    self.transfer.beat()
                    quiet = 0.0
                sent, pause = self.transfer.offset, SEND_EVERY
                if is_last:
                    break
            except Away:
                pause = min(2 * pause, LONGEST_PAUSE)
                if is_last:  # the wait above is none any more
                    time.sleep(SEND_EVERY)
            except LabError as error:
                self.problem = str(error)
                sys.stderr.write(f"lab: the log of {self.transfer.log.run} is not sent: {error}\n")
                break
        self.done.set()


def send_left(folder: Path, server: Server) -> dict[str, str]:
    """Send the logs that programs which are gone left for ``server``; what became of each, by its run.

    ``Away`` ends it; what was sent stays sent.
    """
    fates: dict[str, str] = {}
    for log in left_behind(folder):
        try:
            wanted = log.header().get("server", "")
            if wanted and wanted != server.url:
                fates[str(log.run)] = f"is for {wanted}"
                continue
            place = Server(server.url, server.token, log.header().get("project") or server.project)
            try:
                Transfer(place, log).send_rest()
                log.remove()
                fates[str(log.run)] = "sent"
            except Refused as refusal:
                fates[str(log.run)] = str(refusal)
        finally:
            log.close()
    return fates
