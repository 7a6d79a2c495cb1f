"""An identity provider that speaks OpenID Connect or SAML, from the environment; none where neither
``OIDC_ISSUER`` nor ``SAML_ENTITY_ID`` is set. People of its group join a team when they first come; without a
team only those who are invited.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from webapp.settings.saml import saml_provider

#: In the addresses that the provider sends people back to: /accounts/oidc/company/login/callback/.
PROVIDER_ID = "company"
PROTOCOLS = ("openid_connect", "saml")
ROLES = ("viewer", "member", "admin")
#: As long as ``openssl rand -hex 16`` makes them.
SHORTEST_TOKEN = 32


def identity_provider(environment: Mapping[str, str]) -> dict[str, Any]:
    """What allauth and ``webapp.accounts.identity`` are told of it; empty without one.

    Raises ``ImproperlyConfigured`` for two providers, an issuer without a client, or a role that does not
    exist.
    """
    if environment.get("SAML_ENTITY_ID"):
        if environment.get("OIDC_ISSUER"):
            raise ImproperlyConfigured(
                "OIDC_ISSUER and SAML_ENTITY_ID are set: one identity provider at most"
            )
        return saml_provider(environment, _who_may(environment, "SAML", "SAML_GROUPS_ATTRIBUTE"))
    return _openid_connect(environment)


def _openid_connect(environment: Mapping[str, str]) -> dict[str, Any]:
    issuer = environment.get("OIDC_ISSUER", "").rstrip("/")
    if not issuer:
        return {}
    told = {name: environment.get(f"OIDC_{name.upper()}", "") for name in ("client_id", "client_secret")}
    for name, value in told.items():
        if not value:
            raise ImproperlyConfigured(f"OIDC_ISSUER is set: set OIDC_{name.upper()} too")
    return {
        "protocol": "openid_connect",
        "provider_id": PROVIDER_ID,
        "name": environment.get("OIDC_NAME") or urlsplit(issuer).hostname,
        "client_id": told["client_id"],
        "secret": told["client_secret"],
        "settings": {
            "server_url": issuer,
            "oauth_pkce_enabled": True,
            **_who_may(environment, "OIDC", "OIDC_GROUPS_CLAIM"),
        },
    }


def _who_may(environment: Mapping[str, str], prefix: str, claim: str) -> dict[str, str]:
    """The team that people join, as what, and the group that is asked for."""
    role = environment.get(f"{prefix}_ROLE") or "viewer"
    if role not in ROLES:
        raise ImproperlyConfigured(f"{prefix}_ROLE is {role!r}: one of {', '.join(ROLES)}")
    return {
        "team": environment.get(f"{prefix}_TEAM", ""),
        "role": role,
        "group": environment.get(f"{prefix}_GROUP", ""),
        "claim": environment.get(claim) or "groups",
    }


def provider_apps(provider: Mapping[str, Any]) -> dict[str, Any]:
    """The provider as allauth's setting has it, by protocol."""
    app = {key: value for key, value in provider.items() if key != "protocol"}
    return {name: {"APPS": [app] if provider.get("protocol") == name else []} for name in PROTOCOLS}


def scim_token(environment: Mapping[str, str]) -> str:
    """What the provider sends with whom it removes; empty where it may remove nobody.

    Raises ``ImproperlyConfigured`` for one that could be guessed, or that no header carries.
    """
    token = environment.get("SCIM_TOKEN", "").strip()
    if token and len(token) < SHORTEST_TOKEN:
        raise ImproperlyConfigured(
            f"SCIM_TOKEN has {len(token)} characters: at least {SHORTEST_TOKEN} (openssl rand -hex 32)"
        )
    if not re.fullmatch(r"[\x21-\x7e]*", token):
        raise ImproperlyConfigured("SCIM_TOKEN has blanks or letters that are not ASCII")
    return token


def forms_may_lead_to(environment: Mapping[str, str]) -> list[str]:
    """Origins of the provider's sign-in page, for the Content-Security-Policy: a form of ours leads there."""
    issuer = environment.get("OIDC_ISSUER", "")
    page = environment.get("SAML_SIGN_IN") if environment.get("SAML_ENTITY_ID") else None
    page = page or (issuer and (environment.get("OIDC_SIGN_IN") or issuer))
    if not page:
        return []
    where = urlsplit(page)
    return [f"{where.scheme}://{where.netloc}"]
