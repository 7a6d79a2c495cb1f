"""The form of a new token."""

from django import forms

from webapp.accounts.models import Role
from webapp.names import NameField

TOKEN_ROLES = (
    (Role.VIEWER, "only read"),
    (Role.MEMBER, "read, upload and run"),
    (Role.ADMIN, "also say who is told of changes"),
)


class TokenForm(forms.Form):
    name = NameField(max_length=80, label="Name", help_text="what it is for, so that you dare to revoke it")
    role = forms.ChoiceField(
        label="May",
        choices=TOKEN_ROLES,
        initial=Role.MEMBER,
    )
    days = forms.TypedChoiceField(
        label="Expires",
        choices=((30, "in 30 days"), (90, "in 90 days"), (365, "in a year"), ("", "never")),
        coerce=int,
        empty_value=None,
        initial=365,
        required=False,
    )
