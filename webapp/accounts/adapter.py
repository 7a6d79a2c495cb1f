"""Sign-up is closed; only the bearer of an invitation gets an account."""

from __future__ import annotations

from allauth.account.adapter import DefaultAccountAdapter
from django.http import HttpRequest

from webapp.accounts import invitations


class InvitedOnly(DefaultAccountAdapter):  # type: ignore[misc]
    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return invitations.remembered_invitation(request) is not None
