"""Telling people of changes: one message a night to each channel, by Apprise or as a signed webhook."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import secrets
import socket
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import requests
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Prefetch, QuerySet

from experiments.core.errors import BadInput
from experiments.core.metrics import METRICS
from experiments.core.units import human
from webapp.accounts.models import Project
from webapp.navigation import project_url
from webapp.nightly.models import Change, Channel, Message, Night
from webapp.nightly.services import UNFINISHED

#: Services of Apprise that a lab may be told through; the rest write files, run programs or ring desktops.
SERVICES = (
    *("mailto", "mailtos", "slack", "discord", "msteams", "workflows", "mmost", "mmosts", "rocket"),
    *("rockets", "matrix", "matrixs", "zulip", "gchat", "tgram", "ntfy", "ntfys", "pagerduty", "opsgenie"),
)
#: Those of which the address names a server.
WITH_HOSTS = ("mailto", "mailtos", "mmost", "mmosts", "rocket", "rockets", "matrix", "matrixs")
#: One message a night: the next is sent no sooner.
BETWEEN = timedelta(hours=20)
#: What failed is sent again after so long, until it is older than a day.
RETRY, GIVEN_UP = timedelta(minutes=15), timedelta(days=1)
TIMEOUT = 10
#: Changes that one message names; of more it says how many.
NAMED = 20
#: Messages of each channel on their page.
MESSAGES_SHOWN = 10


class Undelivered(Exception):
    """Why a message did not arrive, in words."""


def check_address(kind: str, address: str) -> None:
    """Raises ``ValidationError`` for what no message could be sent to, or should not be."""
    scheme, host = urlsplit(address).scheme.lower(), urlsplit(address).hostname
    if kind == Channel.Kind.WEBHOOK:
        if scheme != "https" and not (scheme == "http" and settings.NOTIFY_PRIVATE):
            raise ValidationError("a webhook's address begins with https://")
        _refuse_inside(host or "")
        return
    if scheme not in SERVICES:
        raise ValidationError(f"{scheme or 'this'} is not one of {', '.join(SERVICES)}")
    import apprise  # costs a second, and only those who send need it

    if apprise.Apprise.instantiate(address) is None:
        raise ValidationError(f"Apprise cannot read this {scheme} address")
    if scheme in WITH_HOSTS:
        _refuse_inside(host or "")


def _refuse_inside(host: str) -> None:
    """The network behind the lab is not asked for those who use it (``NOTIFY_PRIVATE`` lets them)."""
    if settings.NOTIFY_PRIVATE:
        return
    try:
        found = {row[4][0] for row in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise ValidationError(f"{host or 'no host'} is not known: {error}") from error
    if any(not ipaddress.ip_address(str(one).partition("%")[0]).is_global for one in found):
        raise ValidationError(f"{host} is inside a private network; NOTIFY_PRIVATE=1 of the server allows it")


def new_secret() -> str:
    return secrets.token_hex(24)


def renew_secret(channel: Channel) -> None:
    """Sign with another secret from now on. ``BadInput`` for mail and chat, which sign nothing."""
    if channel.kind != Channel.Kind.WEBHOOK:
        raise BadInput(f"{channel} is no webhook", "channel", "mail and chat have no secret")
    channel.secret = new_secret()
    channel.save(update_fields=["secret"])


def send_due(now: datetime) -> None:
    """Sends what every channel has not been told, where its night is over and it is not quiet there."""
    for key in list(Channel.objects.filter(project__trashed_at=None).values_list("pk", flat=True)):
        with transaction.atomic():
            held = Channel.objects.select_for_update(skip_locked=True, of=("self",)).filter(pk=key)
            channel = held.select_related("project__team").first()
            if channel is not None:  # else another worker is at it
                _send_news(channel, now)


def _send_news(channel: Channel, now: datetime) -> None:
    found = untold(channel, now)
    if found and not channel.is_quiet(now.hour) and _may_send(channel, now):
        send(channel, found, now)


def untold(channel: Channel, now: datetime) -> list[Change]:
    """Open changes that the channel was not sent; none while nights run or changes are run again."""
    project = channel.project
    nights = Night.objects.filter(schedule__project=project, slot__gt=now - timedelta(days=1))
    if nights.filter(experiment__runs__state__in=UNFINISHED).exists():
        return []
    changes = Change.objects.filter(schedule__project=project, silent=False)
    if changes.filter(state=Change.State.CONFIRMING).exists():
        return []
    told = Message.objects.filter(channel=channel, error="").values("changes")
    news = changes.filter(state=Change.State.OPEN, found_at__gte=channel.created_at)
    return list(news.exclude(pk__in=told).select_related("schedule__project__team"))


def _may_send(channel: Channel, now: datetime) -> bool:
    last: Message | None = channel.messages.first()
    if last is None:
        return True
    return now - last.at >= (RETRY if last.error else BETWEEN)


@transaction.atomic
def send(channel: Channel, changes: Sequence[Change], now: datetime) -> Message:
    """One message of all the changes; the log says why where it did not arrive."""
    error = ""
    try:
        deliver(channel, title_of(channel.project, changes), changes, now)
    except Undelivered as reason:
        error = str(reason)[:300]
    made = Message.objects.create(channel=channel, at=now, error=error)
    made.changes.set(changes)
    return made


def deliver_test(channel: Channel, now: datetime) -> None:
    """Send a message that names no change. Raises ``Undelivered``."""
    deliver(channel, title_of(channel.project, []), [], now)


def deliver(channel: Channel, title: str, changes: Sequence[Change], now: datetime) -> None:
    """Raises ``Undelivered``."""
    try:
        check_address(channel.kind, channel.address)
    except ValidationError as error:
        raise Undelivered("; ".join(error.messages)) from error
    if channel.kind == Channel.Kind.WEBHOOK:
        _post(channel, title, changes, now)
        return
    import apprise

    sender = apprise.Apprise()
    sender.add(channel.address)
    if not sender.notify(title=title, body=body_of(changes) or "A test: messages arrive."):
        raise Undelivered("the service did not take the message")


def _post(channel: Channel, title: str, changes: Sequence[Change], now: datetime) -> None:
    """JSON, signed so that its reader can tell that it is ours and new: HMAC-SHA256 of ``<time>.<body>``."""
    told = {"title": title, "project": str(channel.project), "changes": [row_of(one) for one in changes]}
    body = json.dumps(told).encode()
    at = str(int(now.timestamp()))
    headers = {
        "Content-Type": "application/json",
        "X-Lab-Timestamp": at,
        "X-Lab-Signature": f"sha256={signature(channel.secret, at, body)}",
    }
    try:
        answer = requests.post(
            channel.address, data=body, headers=headers, timeout=TIMEOUT, allow_redirects=False
        )
    except requests.RequestException as error:
        raise Undelivered(f"{type(error).__name__}: {error}") from error
    if answer.status_code >= 300:
        raise Undelivered(f"it answered {answer.status_code}")


def signature(secret: str, at: str, body: bytes) -> str:
    return hmac.new(secret.encode(), at.encode() + b"." + body, hashlib.sha256).hexdigest()


def title_of(project: Project, changes: Sequence[Change]) -> str:
    worse = sum(change.better is False for change in changes)
    figures = f"{len(changes)} figure{'' if len(changes) == 1 else 's'}"
    return f"{project}: {figures} changed, {worse} for the worse" if changes else f"{project}: a test"


def body_of(changes: Sequence[Change]) -> str:
    """A line each, the worse first."""
    ordered = sorted(changes, key=lambda change: (change.better is not False, -abs(change.fraction or 0)))
    lines = [line_of(change) for change in ordered[:NAMED]]
    return "\n".join([*lines, *([f"and {len(ordered) - NAMED} more"] if len(ordered) > NAMED else [])])


def line_of(change: Change) -> str:
    known = METRICS.get(change.metric)
    unit, label = (known.unit, known.label) if known else ("", change.metric)
    moved = "" if change.fraction is None else f" ({100 * change.fraction:+.1f} %)"
    levels = f"{human(change.before, unit)} -> {human(change.after, unit)}{moved}"
    return f"{label} of {change.title}: {levels}; {change.suspects}; {link_of(change)}"


def link_of(change: Change) -> str:
    where = project_url(change.schedule.project, "nightly:change", change=change.pk)
    return f"{settings.PUBLIC_URL}{where}"


def row_of(change: Change) -> dict[str, Any]:
    names = ("metric", "title", "before", "after", "better", "suspects", "state")
    told = {name: getattr(change, name) for name in names}
    return {**told, "suite": change.schedule.suite, "since": change.slot.isoformat(), "url": link_of(change)}


def with_messages(channels: QuerySet[Channel]) -> QuerySet[Any]:
    """The channels with the ``last_messages`` to each."""
    last = Message.objects.prefetch_related("changes")[:MESSAGES_SHOWN]
    return channels.prefetch_related(Prefetch("messages", last, to_attr="last_messages"))
