"""The sign-in pages that exist here. Those that send mail do not: accounts have no addresses of theirs."""

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

urlpatterns = [
    *(page for page in account.urlpatterns if page.name in PAGES),
    path("provider/", include([page for page in provided.urlpatterns if page.name in PROVIDED])),
    path("", include("webapp.accounts.identity_urls")),
    path("2fa/", include("allauth.mfa.urls")),
]
