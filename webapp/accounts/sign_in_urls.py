"""The sign-in pages that exist here. Those that send mail do not: accounts have no addresses of theirs."""

from importlib.util import find_spec

from allauth.account import urls as account
from allauth.socialaccount import urls as provided
from django.urls import include, path

PAGES = frozenset(
    {
        "account_login",
        "account_logout",
        "account_signup",
        "account_inactive",
        "account_reauthenticate",
        "account_change_password",
    }
)

#: Where an identity provider sends people back to.
PROVIDED = frozenset({"socialaccount_login_cancelled"})

#: Sign-in by SAML needs a library that not every lab has (requirements-saml.txt).
HAS_SAML = find_spec("onelogin") is not None

urlpatterns = [
    *(page for page in account.urlpatterns if page.name in PAGES),
    path("provider/", include([page for page in provided.urlpatterns if page.name in PROVIDED])),
    path("", include("webapp.accounts.identity_urls")),
    *([path("", include("webapp.accounts.saml_urls"))] if HAS_SAML else []),
    path("2fa/", include("allauth.mfa.urls")),
]
