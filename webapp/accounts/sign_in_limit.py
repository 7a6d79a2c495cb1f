"""How often a wrong password may be tried: counted by django-axes for an account at an address, together.

So who tries names at random locks out nobody else at their address, and nobody elsewhere locks an account.
"""

from __future__ import annotations

import ipaddress
import unicodedata
from collections.abc import Mapping
from typing import Any

from axes.helpers import get_cool_off
from axes.models import AccessAttempt
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from webapp.accounts.models import User
from webapp.refusals import too_many

LONGEST = User._meta.get_field("username").max_length
#: One household or office has at least so many bits of an IPv6 address, and may take any of the rest.
IPV6_PREFIX = 64


def account_name(request: HttpRequest, credentials: Mapping[str, Any] | None) -> str:
    """The account that is tried, however it is spelled: sign-in ignores case, and so does the count."""
    given = (credentials or {}).get("username") or request.POST.get("login", "")
    return unicodedata.normalize("NFKC", str(given)).strip().casefold().replace("\0", "")[:LONGEST]


def client_address(request: HttpRequest) -> str | None:
    """Who asks, as ``TRUSTED_PROXIES`` say; of IPv6 the network; ``None`` where it is no address."""
    try:
        found = ipaddress.ip_address(request.META.get("REMOTE_ADDR", ""))
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((found, IPV6_PREFIX), strict=False).network_address)
    return str(found)


def refuse_sign_in(request: HttpRequest, *answered: Any) -> HttpResponse:
    """429, and when the oldest wrong passwords are forgotten."""
    return too_many(request, _seconds_left(request))


def _seconds_left(request: HttpRequest) -> int:
    name = account_name(request, getattr(request, "axes_credentials", None))
    tried = AccessAttempt.objects.filter(username=name, ip_address=client_address(request))
    last = tried.order_by("-attempt_time").values_list("attempt_time", flat=True).first()
    left = get_cool_off(request) - (timezone.now() - last) if last else get_cool_off(request)
    return max(1, int(left.total_seconds()))
