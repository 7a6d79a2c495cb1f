"""An identity provider that speaks OpenID Connect, from the environment; none where ``OIDC_ISSUER`` is not
set. People of its group join a team when they first come; without a team only those who are invited.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

#: In the addresses that the provider sends people back to: /accounts/oidc/company/login/callback/.
PROVIDER_ID = "company"
ROLES = ("viewer", "member", "admin")


def identity_provider(environment: Mapping[str, str]) -> dict[str, Any]:
    """What allauth and ``webapp.accounts.identity`` are told of it; empty without one.

    Raises ``ImproperlyConfigured`` for an issuer without a client, or a role that does not exist.
    """
    issuer = environment.get("OIDC_ISSUER", "").rstrip("/")
    if not issuer:
        return {}
    told = {name: environment.get(f"OIDC_{name.upper()}", "") for name in ("client_id", "client_secret")}
    for name, value in told.items():
        if not value:
            raise ImproperlyConfigured(f"OIDC_ISSUER is set: set OIDC_{name.upper()} too")
    role = environment.get("OIDC_ROLE") or "viewer"
    if role not in ROLES:
        raise ImproperlyConfigured(f"OIDC_ROLE is {role!r}: one of {', '.join(ROLES)}")
    return {
        "provider_id": PROVIDER_ID,
        "name": environment.get("OIDC_NAME") or urlsplit(issuer).hostname,
        "client_id": told["client_id"],
        "secret": told["client_secret"],
        "settings": {
            "server_url": issuer,
            "oauth_pkce_enabled": True,
            "team": environment.get("OIDC_TEAM", ""),
            "role": role,
            "group": environment.get("OIDC_GROUP", ""),
            "claim": environment.get("OIDC_GROUPS_CLAIM") or "groups",
        },
    }


def forms_may_lead_to(environment: Mapping[str, str]) -> list[str]:
    """Origins of the provider's sign-in page, for the Content-Security-Policy: a form of ours leads there."""
    issuer = environment.get("OIDC_ISSUER", "")
    if not issuer:
        return []
    where = urlsplit(environment.get("OIDC_SIGN_IN") or issuer)
    return [f"{where.scheme}://{where.netloc}"]
