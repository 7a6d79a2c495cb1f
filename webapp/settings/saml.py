"""An identity provider that speaks SAML 2.0, from the environment; none where ``SAML_ENTITY_ID`` is not set.

What it is known by is said here and not fetched: its name, the address of its sign-in page and the
certificate that its answers are signed with.
"""

from __future__ import annotations

import base64
import importlib.util
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

#: In the addresses here: /accounts/saml/company/metadata/.
ORGANIZATION = "company"
NEEDED = ("SAML_SIGN_IN", "SAML_CERTIFICATE")
#: Where providers put the name that people sign in with, unless SAML_USERNAME says it.
USERNAMES = ("urn:oid:0.9.2342.19200300.100.1.1", "uid", "username", "http://schemas.auth0.com/nickname")
EMAILS = (
    "urn:oid:0.9.2342.19200300.100.1.3",
    "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/emailaddress",
    "email",
    "mail",
)
SUBJECTS = ("urn:oasis:names:tc:SAML:attribute:subject-id", "urn:oasis:names:tc:SAML:attribute:pairwise-id")


def saml_provider(environment: Mapping[str, str], settings: Mapping[str, Any]) -> dict[str, Any]:
    """What allauth is told of it, with the team, role and group of ``settings``; empty without one.

    Raises ``ImproperlyConfigured`` for what is missing or is no certificate.
    """
    entity = environment.get("SAML_ENTITY_ID", "")
    if not entity:
        return {}
    for name in NEEDED:
        if not environment.get(name):
            raise ImproperlyConfigured(f"SAML_ENTITY_ID is set: set {name} too")
    if importlib.util.find_spec("onelogin") is None:
        raise ImproperlyConfigured("SAML_ENTITY_ID is set: pip install -r requirements-saml.txt first")
    page, subject = environment["SAML_SIGN_IN"], environment.get("SAML_SUBJECT")
    username = environment.get("SAML_USERNAME")
    return {
        "protocol": "saml",
        "provider_id": entity,
        "name": environment.get("SAML_NAME") or urlsplit(page).hostname,
        "client_id": ORGANIZATION,
        "settings": {
            **settings,
            "idp": {
                "entity_id": entity,
                "sso_url": page,
                "x509cert": _certificate(environment["SAML_CERTIFICATE"]),
            },
            "attribute_mapping": {
                "uid": [subject] if subject else [*SUBJECTS],
                "username": [username] if username else [*USERNAMES],
                "email": [*EMAILS],
            },
            "advanced": {
                "strict": True,
                "reject_idp_initiated_sso": True,
                "reject_deprecated_algorithm": True,
                "allow_single_label_domains": True,  # as a lab inside a network may be called
            },
        },
    }


def _certificate(told: str) -> str:
    """A certificate in PEM, or what stands between its lines, as that."""
    text = re.sub(r"-----[A-Z ]+-----|\s", "", told)
    try:
        content = base64.b64decode(text, validate=True)
    except ValueError:
        content = b""
    if not content.startswith(b"\x30"):  # a sequence, as every certificate is
        raise ImproperlyConfigured("SAML_CERTIFICATE is no certificate: PEM, or the text between its lines")
    return text
