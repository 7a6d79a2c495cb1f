"""Sign-in by SAML: allauth's pages, held to the provider of the settings and to small answers.

Needs python3-saml. Signing out at the provider is not passed on: its message could come from anybody.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from allauth.account.internal import decorators
from allauth.socialaccount.providers.saml import utils, views
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from lxml.etree import XMLSyntaxError
from onelogin.saml2.settings import OneLogin_Saml2_Settings

View = Callable[..., HttpResponse]
#: An answer of a provider has a few kilobytes (bytes), and is kept until its browser comes for it (seconds).
LARGEST_ANSWER, KEPT = 256 * 2**10, 300


def _open_to_all(view: View) -> View:
    opened: View = decorators.login_not_required(view)
    return opened


@_open_to_all
def sign_in(request: HttpRequest, organization_slug: str) -> HttpResponse:
    """Leads to the provider's page."""
    answer: HttpResponse = views.login(_with_host(request), organization_slug=organization_slug)
    return answer


def _with_host(request: HttpRequest) -> HttpRequest:
    """The request with the header ``Host``, which allauth reads and HTTP/1.0 need not have."""
    request.META["HTTP_HOST"] = request.get_host()
    return request


@csrf_exempt
@_open_to_all
@require_POST
def take_answer(request: HttpRequest, organization_slug: str) -> HttpResponse:
    """What the provider's page posts here, kept until this browser comes for it with its session."""
    utils.get_app_or_404(request, organization_slug)
    if len(request.POST.urlencode()) > LARGEST_ANSWER:
        return HttpResponse("the answer is too large", status=413, content_type="text/plain")
    answer: HttpResponse = views.acs(_with_host(request), organization_slug=organization_slug)
    store: Any = request.saml_acs_session  # type: ignore[attr-defined]
    store.set_expiry(KEPT)
    store.save()
    return answer


@_open_to_all
def look_at_answer(request: HttpRequest, organization_slug: str) -> HttpResponse:
    """Signs in whom a good answer names; what is no answer at all is a page that says so."""
    try:
        answer: HttpResponse = views.finish_acs(request, organization_slug=organization_slug)
    except (XMLSyntaxError, ValueError):  # also a document type, which python3-saml forbids
        return render(request, "socialaccount/authentication_error.html", status=400)
    return answer


@_open_to_all
def metadata(request: HttpRequest, organization_slug: str) -> HttpResponse:
    """What the provider is told of this lab."""
    app = utils.get_app_or_404(request, organization_slug)
    config = utils.build_saml_config(request, app.settings, organization_slug)
    del config["sp"]["singleLogoutService"]
    made = OneLogin_Saml2_Settings(settings=config, sp_validation_only=True)
    return HttpResponse(made.get_sp_metadata(), content_type="text/xml")


@_open_to_all
def sign_out(request: HttpRequest, organization_slug: str) -> HttpResponse:
    raise Http404("signing out at the provider is not passed on")


urlpatterns = [
    path("saml/<slug:organization_slug>/login/", sign_in, name="saml_login"),
    path("saml/<slug:organization_slug>/acs/", take_answer, name="saml_acs"),
    path("saml/<slug:organization_slug>/acs/finish/", look_at_answer, name="saml_finish_acs"),
    path("saml/<slug:organization_slug>/metadata/", metadata, name="saml_metadata"),
    path("saml/<slug:organization_slug>/sls/", sign_out, name="saml_sls"),
]
