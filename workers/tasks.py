"""What messages can ask for. No task takes an argument: a lost, doubled or forged message does no harm."""

from __future__ import annotations

from django.utils import timezone

from webapp.accounts import deletion
from webapp.history.segments import keeping
from webapp.hosts import broker
from webapp.logged import points
from webapp.logged.services import give_up_silent
from webapp.nightly import bisection, changes, channels
from webapp.nightly.services import tick_due
from webapp.rates import services as rates
from webapp.runs import lifecycle, queue
from workers.app import app


@app.task(name=queue.WAKE)  # type: ignore[untyped-decorator]
def wake() -> None:
    """Look for runs now instead of at the next idle look."""
    app.dispatcher.wake()


@app.task(name=queue.REAP)  # type: ignore[untyped-decorator]
def reap() -> None:
    """Re-queue what lost its worker."""
    if lifecycle.reap():
        queue.send(queue.WAKE)


@app.task(name=queue.NIGHT)  # type: ignore[untyped-decorator]
def night() -> None:
    """Submit the suites whose slot has come."""
    tick_due(timezone.now())


@app.task(name=queue.WATCH)  # type: ignore[untyped-decorator]
def watch() -> None:
    """Look for changes in nights that have ended, and for their commits, and tell who wants to know; end what
    nobody hears of.
    """
    changes.watch(timezone.now())
    bisection.go_on()
    give_up_silent(timezone.now())
    channels.send_due(timezone.now())


@app.task(name=queue.FOLLOW)  # type: ignore[untyped-decorator]
def follow() -> None:
    """Queue the next runs of searches whose runs have ended."""
    rates.go_on()


@app.task(name=queue.KEEP)  # type: ignore[untyped-decorator]
def keep() -> None:
    """Keep the columns of ended runs that groups of a long history are made of."""
    if keeping.go_on(timezone.now()):
        queue.send(queue.KEEP)


@app.task(name=queue.ADMIT)  # type: ignore[untyped-decorator]
def admit() -> None:
    """Let the hosts that joined hear wake-ups again after a restart of the broker."""
    broker.admit_all()


@app.task(name=queue.RETAIN)  # type: ignore[untyped-decorator]
def retain() -> None:
    """Begin to delete what has been in a trash for longer than it is kept, and pack points of past months."""
    deletion.apply_retention(timezone.now())
    points.pack(timezone.now().date())


@app.task(name=queue.PURGE)  # type: ignore[untyped-decorator]
def purge() -> None:
    """Go on deleting for good what has too many runs for one request, and what a trash no longer keeps."""
    if deletion.go_on():
        queue.send(queue.PURGE)
