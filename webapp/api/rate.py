"""How often a token may ask: counted by the minute in the broker, so that all web processes count together.

Where the broker is away nobody is held back, and it is not asked again for a while. Ninja's own throttles
keep the moment of every request of a caller in Django's cache, and fail where that is away.
"""

from __future__ import annotations

import functools
import time

import redis
from django.conf import settings

from webapp.api.models import ApiToken

WINDOW = 60
#: A count that would take longer than this is not worth it (seconds).
PATIENCE = 0.25
#: For which a broker that did not answer is left alone (seconds).
LEFT_ALONE = 30.0
now = time.time
_asked_again_at = 0.0


class TooOften(Exception):
    """The token has asked as often as it may; ``seconds`` until it may again."""

    def __init__(self, most: int, seconds: int) -> None:
        super().__init__(f"this token may ask {most:,} times a minute; ask again in {seconds} s")
        self.seconds = seconds


def count(token: ApiToken) -> None:
    """One request of ``token``; raises ``TooOften`` where that is one too many."""
    count_as(str(token.pk))


def count_as(name: str) -> None:
    """One request of whoever is counted by that name."""
    most = settings.API_REQUESTS_PER_MINUTE
    moment = now()
    if not most or moment < _asked_again_at:
        return
    if _count_up(name, int(moment // WINDOW), moment) > most:
        raise TooOften(most, WINDOW - int(moment % WINDOW))


def _count_up(name: str, window: int, moment: float) -> int:
    global _asked_again_at
    key = f"rate:{name}:{window}"
    try:
        with _broker(settings.REDIS_URL).pipeline() as both:
            both.incr(key)
            both.expire(key, 2 * WINDOW)
            return int(both.execute()[0])
    except redis.RedisError:
        _asked_again_at = moment + LEFT_ALONE
        return 0


@functools.cache
def _broker(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_timeout=PATIENCE, socket_connect_timeout=PATIENCE)
