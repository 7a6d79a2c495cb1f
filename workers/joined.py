"""``python -m workers.joined``: the worker of a host that joined a lab. It runs the lab's revision only."""

from __future__ import annotations

import http.client
import json
import logging
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from typing import Any, NoReturn

import django
from django.conf import settings

from labtools import worker
from labtools.layout import Layout
from labtools.problems import Problem
from webapp.artifacts.remote import trust
from webapp.hosts import editions

#: Between two tries to reach a lab that is away, and of one try (seconds).
PAUSE, TIMEOUT = 5.0, 10.0
CELERY = ("-A", "workers.app", "worker", "--loglevel", "INFO")
#: What needs more of the message broker than wake-ups.
WITHOUT = ("--without-gossip", "--without-mingle", "--without-heartbeat")

log = logging.getLogger(__name__)


class NotWelcome(Exception):
    """The lab answers, and this host may not work for it: why."""


def main(arguments: list[str]) -> NoReturn:
    """Join with ``JOIN_URL`` where that was not done; wait for the lab, compare versions, become the Celery
    worker.
    """
    try:
        if os.environ.get("JOIN_URL"):
            worker.join_once(Layout.here(), os.environ["JOIN_URL"])
        django.setup()
        while not _is_welcome():
            log.warning("the lab does not answer; trying again")
            time.sleep(PAUSE)
    except (NotWelcome, Problem) as error:
        sys.exit(f"worker: {error}")
    os.execv(sys.executable, [sys.executable, "-m", "celery", *CELERY, *WITHOUT, *arguments])


def require_same_edition() -> None:
    """End this worker where the lab has gone on to another revision or revoked this host; on the lab's own
    hosts nothing.
    """
    if settings.JOINED is None:
        return
    try:
        _is_welcome()
    except NotWelcome as error:
        log.error("%s: ending", error)
        os.kill(os.getpid(), signal.SIGTERM)


def _is_welcome() -> bool:
    """Whether the lab takes this host; False while it does not answer. Raises ``NotWelcome``."""
    told = _ask_edition()
    if told is not None and (differs := editions.difference(editions.here(), told)):
        raise NotWelcome(f"{differs}; check out the lab's revision and start again")
    return told is not None


def _ask_edition() -> dict[str, Any] | None:
    joined = settings.JOINED
    assert joined is not None
    asked = urllib.request.Request(
        f"{joined['url']}/hosts/hello", headers={"Authorization": f"Bearer {joined['token']}"}
    )
    context = trust(joined["certificate"])
    try:
        with urllib.request.urlopen(asked, timeout=TIMEOUT, context=context) as answer:
            found: dict[str, Any] = json.load(answer)["edition"]
            return found
    except urllib.error.HTTPError as error:
        if error.code == 401:
            raise NotWelcome("the lab revoked this host") from None
        return None
    except (OSError, http.client.HTTPException, ValueError):
        return None


if __name__ == "__main__":
    main(sys.argv[1:])
