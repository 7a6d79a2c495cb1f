"""Users of the message broker for joined hosts: each may say and hear wake-ups, and nothing else.

The broker keeps nothing over a restart; Postgres knows who joined, and beat has them admitted again.
"""

from __future__ import annotations

import redis
from django.conf import settings

from webapp.hosts.models import HostAccess

#: What a Celery worker does on a fanout exchange; its queue is a channel, so the keys stay empty.
COMMANDS = (
    "hello auth ping select client|setinfo multi exec sadd srem llen del psubscribe punsubscribe publish"
)
KEYS = ("_kombu.binding.wake", "_kombu.binding_permanent.wake", "bcast.*")


def connect() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2)


def admit(access: HostAccess) -> None:
    """The host's user, with no more than it needs. ``redis.RedisError`` where the broker is away."""
    with connect() as broker:
        channel = f"/{broker.get_connection_kwargs().get('db', 0)}.wake/wake"
        may = [f"~{key}" for key in KEYS] + [f"&{channel}"] + [f"+{word}" for word in COMMANDS.split()]
        broker.execute_command(
            "ACL", "SETUSER", access.host.role, "reset", "on", f"#{access.broker_sha256}", *may
        )


def expel(access: HostAccess) -> None:
    """Remove the user and end its connections."""
    with connect() as broker:
        broker.acl_deluser(access.host.role)
        broker.execute_command("CLIENT", "KILL", "USER", access.host.role)


def admit_all() -> int:
    """Put the broker's users right after a restart of it; how many were changed."""
    with connect() as broker:
        known = {str(name, "utf-8") if isinstance(name, bytes) else name for name in broker.acl_users()}
    missing = [one for one in _joined() if one.revoked_at is None and one.host.role not in known]
    left = [one for one in _joined() if one.revoked_at is not None and one.host.role in known]
    for one in missing:
        admit(one)
    for one in left:
        expel(one)
    return len(missing) + len(left)


def _joined() -> list[HostAccess]:
    return list(HostAccess.objects.select_related("host"))
