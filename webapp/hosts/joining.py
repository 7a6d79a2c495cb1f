"""Hosts join and leave: an address that is shown once is exchanged for credentials that can be revoked."""

from __future__ import annotations

import hashlib
import logging
import secrets
import ssl
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import redis
from django.conf import settings
from django.db import ProgrammingError, transaction
from django.db.models.functions import Now
from django.utils import timezone

from webapp.accounts.models import User
from webapp.hosts import broker, editions, roles
from webapp.hosts.gate import MARK, digest
from webapp.hosts.models import Host, HostAccess, HostInvitation

#: An address that nobody used for so long opens nothing any more.
VALID = timedelta(hours=24)

log = logging.getLogger(__name__)


class Refused(Exception):
    """The host may not join; the text says why."""


def takes_hosts() -> bool:
    """Whether this lab's servers can be reached by other machines."""
    return bool(settings.HOSTS_DATABASE_URL and settings.HOSTS_REDIS_URL)


def invite(user: User, name: str) -> str:
    """The secret of an address for a host of that name."""
    secret = secrets.token_urlsafe(32)
    expires = timezone.now() + VALID
    HostInvitation.objects.create(name=name, sha256=digest(secret), created_by=user, expires_at=expires)
    return secret


def address(server: str, secret: str) -> str:
    """What ``./lab worker --join`` takes. What follows the # is sent to no server and stands in no log."""
    pin = f".{fingerprint()}" if settings.HOSTS_PINNED else ""
    return f"{(settings.HOSTS_URL or server).rstrip('/')}/hosts/join#{secret}{pin}"


def fingerprint() -> str:
    """SHA-256 of the certificate that a joining host shall find."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(_certificate())).hexdigest()


@transaction.atomic
def join(secret: str, told: Mapping[str, str]) -> dict[str, Any]:
    """Exchange the secret, once, for the host's own credentials. ``Refused`` says why not."""
    invitation = HostInvitation.objects.select_for_update().filter(sha256=digest(secret)).first()
    if invitation is None or not invitation.opens:
        raise Refused("this address opens nothing: it was used, or is too old, or was never made")
    if differs := editions.difference(told, editions.here()):
        raise Refused(differs)
    HostInvitation.objects.filter(pk=invitation.pk).update(used_at=timezone.now())
    return _admit(invitation)


def _admit(invitation: HostInvitation) -> dict[str, Any]:
    role = f"lab_host_{secrets.token_hex(6)}"
    token, password, broker_password = MARK + secrets.token_urlsafe(32), *_passwords(2)
    had = Host.objects.filter(name=invitation.name).first()
    if had is not None and not is_gone(had):
        raise Refused(f"a host named {invitation.name} is there already")
    host = Host.objects.update_or_create(name=invitation.name, defaults={"role": role})[0]
    HostAccess.objects.filter(host=host).delete()
    access = HostAccess.objects.create(
        host=host,
        token_sha256=digest(token),
        broker_sha256=digest(broker_password),
        invited_by=invitation.created_by,
    )
    try:
        roles.create(role, password)
    except ProgrammingError as error:
        raise Refused(f"the lab's own database user may make no roles: {error}") from error
    _tell_broker(broker.admit, access)
    return {
        "name": host.name,
        "role": role,
        "token": token,
        "database_url": _with_login(settings.HOSTS_DATABASE_URL, role, password),
        "redis_url": _with_login(settings.HOSTS_REDIS_URL, role, broker_password),
        "certificate": _certificate(),
    }


def is_gone(host: Host) -> bool:
    """Whether its name may be taken: it was revoked."""
    return HostAccess.objects.filter(host=host).exclude(revoked_at=None).exists()


@transaction.atomic
def revoke(access: HostAccess) -> None:
    """The host opens nothing from now on, and what it had in hand is taken up by others."""
    access.revoked_at = timezone.now()
    access.save(update_fields=["revoked_at"])
    roles.drop(access.host.role)
    _tell_broker(broker.expel, access)
    access.host.runs.filter(state="running").update(lease_until=Now())


def _tell_broker(change: Callable[[HostAccess], None], access: HostAccess) -> None:
    """Where it is away, beat does it later: a wake-up more or less decides nothing."""
    try:
        change(access)
    except redis.RedisError as error:
        log.warning("the message broker does not answer: %s", error)


def _passwords(count: int) -> tuple[str, ...]:
    return tuple(secrets.token_urlsafe(32) for _ in range(count))


def _with_login(url: str, user: str, password: str) -> str:
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{quote(user)}:{quote(password)}@{place}").geturl()


def _certificate() -> str:
    return Path(settings.HOSTS_CERTIFICATE).read_text() if settings.HOSTS_CERTIFICATE else ""
