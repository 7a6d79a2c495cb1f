"""The provider's sign-in, with a page of ours where it cannot be reached."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from allauth.account.internal.decorators import login_not_required
from allauth.socialaccount.providers.openid_connect import views
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from requests import RequestException

View = Callable[..., HttpResponse]


def _answering(view: View) -> View:
    @wraps(view)
    def answer(request: HttpRequest, **kwargs: Any) -> HttpResponse:
        try:
            return view(request, **kwargs)
        except RequestException:
            return render(request, "socialaccount/authentication_error.html", status=503)

    wrapped: View = login_not_required(answer)
    return wrapped


urlpatterns = [
    path("oidc/<slug:provider_id>/login/", _answering(views.login), name="openid_connect_login"),
    path(
        "oidc/<slug:provider_id>/login/callback/",
        _answering(views.callback),
        name="openid_connect_callback",
    ),
]
