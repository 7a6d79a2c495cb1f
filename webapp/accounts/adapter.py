"""Sign-up is closed; only the bearer of an invitation gets an account."""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from django.http import HttpRequest

from webapp.accounts import invitations
from webapp.names import validate_name


class InvitedOnly(DefaultAccountAdapter):  # type: ignore[misc]
    def clean_username(self, username: str, shallow: bool = False) -> str:
        """One that can be seen, besides what Django asks of it."""
        validate_name(username)
        return str(super().clean_username(username, shallow))

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Nothing: wrong passwords are counted by django-axes (``sign_in_limit``)."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return invitations.remembered_invitation(request) is not None
