"""Sign-in through the identity provider of the settings (``webapp.settings.identity``): who may come in, and
the team that they join.
"""

from __future__ import annotations

from typing import Any

from allauth.account.signals import user_signed_up
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from django.conf import settings
from django.http import HttpRequest
from django.shortcuts import render

from webapp.accounts import invitations
from webapp.accounts.models import Membership, Team, User

NOT_IN_GROUP = "Your account at {name} is not in the group that may use this lab."
NOT_INVITED = "There is no account here for you yet: ask an admin of your team for an invitation link."


def provider() -> dict[str, Any]:
    """What the settings say of the identity provider; empty without one."""
    told: dict[str, Any] = settings.IDENTITY_PROVIDER
    return told


class FromProvider(DefaultSocialAccountAdapter):  # type: ignore[misc]
    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        """Refuses who is not, or no longer, in the group that the settings name; then who would be new and
        may not come in.
        """
        told = provider()
        if not _in_group(sociallogin.account.extra_data):
            raise ImmediateHttpResponse(_refusal(request, NOT_IN_GROUP.format(name=told["name"])))
        if not sociallogin.is_existing and not self.is_open_for_signup(request, sociallogin):
            raise ImmediateHttpResponse(_refusal(request, NOT_INVITED))

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        """Whether the settings let the provider's people join a team, or this one was invited."""
        return _team() is not None or invitations.remembered_invitation(request) is not None

    def populate_user(self, request: HttpRequest, sociallogin: Any, data: dict[str, Any]) -> User:
        """A name that can be seen; accounts here have no addresses of theirs."""
        name = data.get("username") or str(data.get("email") or "").partition("@")[0]
        user: User = super().populate_user(request, sociallogin, {**data, "username": name, "email": None})
        sociallogin.email_addresses = []
        return user


def _join_after_sign_up(request: HttpRequest, user: User, **kwargs: Any) -> None:
    """Makes somebody who came through the provider a member of the team that the settings name."""
    team = _team() if kwargs.get("sociallogin") is not None else None
    if team is not None:
        role = provider()["settings"]["role"]
        Membership.objects.get_or_create(team=team, user=user, defaults={"role": role})


def connect() -> None:
    user_signed_up.connect(_join_after_sign_up, dispatch_uid="join the team of the identity provider")


def _team() -> Team | None:
    slug = provider().get("settings", {}).get("team")
    return Team.objects.filter(slug=slug).first() if slug else None


def _in_group(told: dict[str, Any]) -> bool:
    """Whether any of the provider's answers has the group in its claim; everybody is where none is asked."""
    asked = provider()["settings"]
    if not asked["group"]:
        return True
    answers = [told, told.get("userinfo") or {}, told.get("id_token") or {}]
    found = [answer.get(asked["claim"]) for answer in answers]
    return any(asked["group"] in groups for groups in found if isinstance(groups, list))


def _refusal(request: HttpRequest, why: str) -> Any:
    return render(request, "account/refused.html", {"why": why}, status=403)
