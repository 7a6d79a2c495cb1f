"""Redis is reached but never answers: submitting stays quick, and every run is done all the same."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.core.files.base import ContentFile
from django.test import override_settings
from django.utils import timezone

from tests.webapp.cast import make_cast
from tests.webapp.worker import working
from tests.workers.crew import all_ended, project, queue_runs, until
from webapp.artifacts.services import store_upload
from webapp.runs import queue
from webapp.runs.grid import Trial
from webapp.runs.models import Run
from webapp.runs.services import submit_experiment
from workers import dispatcher
from workers.dispatcher import Dispatcher, register

JOBS = b"submit,gpus,service\n0,1,60\n10,1,60\n"
FIFO = {
    "family": "cluster",
    "policy": "fifo",
    "knobs": {},
    "workload": {"format": "auto", "options": {}},
    "hardware": {"cluster": {"nodes": 1, "devices_per_node": 1, "device": "t4"}},
    "mode": "simulated",
    "seed": 0,
}


class Deaf:
    """A server that takes every connection and says nothing on any."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.held: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"redis://:secret@127.0.0.1:{self.listener.getsockname()[1]}/0"

    def _accept(self) -> None:
        while True:
            try:
                self.held.append(self.listener.accept()[0])
            except OSError:
                return

    def close(self) -> None:
        # Closing alone would leave accept() waiting.
        self.listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for each in (self.listener, *self.held):
            each.close()


@pytest.fixture
def deaf(transactional_db: None) -> Iterator[Deaf]:
    made = Deaf()
    queue.client.cache_clear()
    with override_settings(CELERY_BROKER_URL=made.url, REDIS_URL=made.url):
        yield made
    queue.client.cache_clear()
    made.close()


# Without time-outs on the socket the first submission below would wait for ever.
@pytest.mark.timeout(120)
def test_a_run_is_submitted_and_done_while_redis_is_deaf(
    deaf: Deaf,
    settings,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,  # type: ignore[no-untyped-def]
) -> None:
    settings.MEDIA_ROOT = tmp_path / "var" / "files"
    cast = make_cast()
    trace = store_upload(cast.project, cast.max, "jobs.csv", ContentFile(JOBS))
    submit_experiment(cast.project, cast.max, name="", trials=[Trial(trace, FIFO, "")], request={})
    # One try for each of the two, and the words of a time-out, not of a refusal.
    assert len(deaf.held) == 2
    assert [record.getMessage() for record in caplog.records if record.name == queue.__name__] == [
        "no message runs.wake: Timeout reading from socket"
    ] * 2
    with working(tmp_path):
        until(lambda: all_ended(list(Run.objects.all())), 300, "read and simulated")
        assert len(deaf.held) > 2
    assert set(Run.objects.values_list("kind", "state")) == {
        ("inspect", "succeeded"),
        ("policy", "succeeded"),
    }
    # One GPU: the second job comes at 10, waits until 60 and ends at 120: (60 + 110) / 2.
    assert Run.objects.get(kind="policy").metrics.get(name="avg_jct").value == 85


def test_a_worker_takes_back_what_another_lost_without_any_message(
    deaf: Deaf, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lost,) = queue_runs(project(), "sleep 0.1")
    Run.objects.filter(pk=lost.pk).update(state=Run.State.RUNNING, attempt=1, lease_until=timezone.now())
    monkeypatch.setattr(dispatcher, "HEARTBEAT_SECONDS", 0.01)
    with beating(Dispatcher(1)):
        until(lambda: Run.objects.get().state == Run.State.QUEUED, 60, "taken back")
    assert Run.objects.get().infrastructure_losses == 1


@contextmanager
def beating(worker: Dispatcher) -> Iterator[None]:
    """The heartbeat alone, with no slot that would carry the run out."""
    worker._run("heartbeat", worker._beat, register(1, []))
    yield
    worker.stop()
