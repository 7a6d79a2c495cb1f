"""The sign-in pages that exist here. Those that send mail do not: accounts have no addresses of theirs."""

from allauth.account import urls as account
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

urlpatterns = [
    *(page for page in account.urlpatterns if page.name in PAGES),
    path("2fa/", include("allauth.mfa.urls")),
]
