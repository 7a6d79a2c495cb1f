"""Who may do what at which address: the rule that every route of the URLconf must have.

A route is under a team, under a project or of the API by its pattern, and then has that rule at once; any
other is named here, or the matrix fails.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.webapp.routes import Route
from webapp.accounts.models import Role

TEAM, PROJECT, API = "t/<slug:team>/", "t/<slug:team>/<slug:project>/", "api/v1/"
SAFE = ("get", "head", "options")
#: Signed in is who has a session; a bearer has a link that is a secret.
EVERYBODY, SIGNED_IN, BEARER, TOKEN, MEMBERS = "everybody", "signed in", "bearer", "token", "members"
#: Administrators of the installation; it does not exist for others.
ADMINISTRATOR = "administrator"
#: Nobody of the teams: hosts and the identity provider by credentials of their own, and administrators of the
#: lab in a project. What they may is tested where they are.
NONE_OF_THEM = "none of them"


@dataclass(frozen=True)
class Rule:
    """``who`` may come in; of members those of the role ``read`` may look and those of ``write`` may change.

    ``owned`` things are there for the person alone who made them.
    """

    who: str
    read: str = Role.VIEWER
    write: str = Role.MEMBER
    owned: bool = False


#: Rules that are not those of the pattern, by the name of the route.
OTHER_RULES = {
    "trash_project": Rule(MEMBERS, write=Role.ADMIN),
    "keep_runs": Rule(MEMBERS, write=Role.ADMIN),
    "restore": Rule(MEMBERS, write=Role.MEMBER),
    "tokens": Rule(MEMBERS, read=Role.ADMIN, write=Role.ADMIN),
    "artifacts:upload_part": Rule(MEMBERS, owned=True),
    "api-v1:openapi-json": Rule(SIGNED_IN),
    "api-v1:openapi-view": Rule(SIGNED_IN),
    "api-v1:api-root": Rule(EVERYBODY),
    "healthz": Rule(EVERYBODY),
    "readyz": Rule(EVERYBODY),
    "metrics": Rule(ADMINISTRATOR),
    "host_join": Rule(NONE_OF_THEM),
    "host_hello": Rule(NONE_OF_THEM),
    "host_file": Rule(NONE_OF_THEM),
    "hosts:add": Rule(NONE_OF_THEM),
    "hosts:revoke": Rule(NONE_OF_THEM),
    "hosts:validate": Rule(NONE_OF_THEM),
    "home": Rule(SIGNED_IN),
    "viewer": Rule(SIGNED_IN),
    "create_team": Rule(SIGNED_IN),
    "invitation": Rule(BEARER),
    "feed": Rule(BEARER),
    "nightly:channels": Rule(MEMBERS, read=Role.ADMIN, write=Role.ADMIN),
    "nightly:channel": Rule(MEMBERS, read=Role.ADMIN, write=Role.ADMIN),
    "nightly:channel_secret": Rule(MEMBERS, write=Role.ADMIN),
    "nightly:channel_test": Rule(MEMBERS, write=Role.ADMIN),
    "nightly:channel_remove": Rule(MEMBERS, write=Role.ADMIN),
    "account_login": Rule(EVERYBODY),
    "account_signup": Rule(EVERYBODY),
    "account_inactive": Rule(EVERYBODY),
    "account_logout": Rule(EVERYBODY),
    "mfa_authenticate": Rule(EVERYBODY),
    "socialaccount_login_cancelled": Rule(EVERYBODY),
    **{f"saml_{name}": Rule(NONE_OF_THEM) for name in ("login", "acs", "finish_acs", "metadata", "sls")},
    **{f"scim_{name}": Rule(NONE_OF_THEM) for name in ("config", "people", "person", "groups")},
    "openid_connect_login": Rule(NONE_OF_THEM),
    "openid_connect_callback": Rule(NONE_OF_THEM),
}
#: Pages of one's own account, all of allauth's.
OWN_ACCOUNT = ("account_reauthenticate", "account_change_password", "mfa_")


def rule_of(route: Route) -> Rule:
    """The rule of a route; ``KeyError`` for one that nobody has thought about."""
    if route.name in OTHER_RULES:
        return OTHER_RULES[route.name]
    if route.name.startswith(OWN_ACCOUNT):
        return Rule(SIGNED_IN)
    for beginning, rule in (
        (PROJECT, Rule(MEMBERS)),
        (TEAM, Rule(MEMBERS, write=Role.ADMIN)),
        (API + "channels", Rule(TOKEN, read=Role.ADMIN, write=Role.ADMIN)),
        (API, Rule(TOKEN)),
    ):
        if route.pattern.startswith(beginning):
            return rule
    raise KeyError(f"{route.pattern} ({route.name}) has no rule: who may come in, look and change?")
