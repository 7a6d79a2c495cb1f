"""Team tokens: how one looks, and which one a request carries. Only the hash of a token is kept."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from django.http import HttpRequest
from django.utils import timezone
from ninja.security import HttpBearer

from webapp.api import rate
from webapp.api.models import ApiToken

#: So that a token found in a log or a repository is recognized as one.
MARK = "lab_"
PREFIX_LENGTH = 12
#: The time of last use is written at most this often.
USE_IS_NOTED_EVERY = timedelta(minutes=1)


def new_secret() -> str:
    return MARK + secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


class TeamToken(HttpBearer):
    """``Authorization: Bearer lab_...``. Puts the token on ``request.auth``.

    One that was revoked or has expired opens nothing; one that asks too often is held back (``TooOften``).
    """

    def authenticate(self, request: HttpRequest, token: str) -> ApiToken | None:
        found = ApiToken.objects.select_related("team", "created_by").filter(sha256=digest(token)).first()
        if found is None or not found.opens:
            return None
        rate.count(found)
        _note_use(found)
        return found


def _note_use(token: ApiToken) -> None:
    now = timezone.now()
    if token.last_used_at is None or token.last_used_at < now - USE_IS_NOTED_EVERY:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
