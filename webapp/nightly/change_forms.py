"""Forms of changes: what is decided, what is said, and whom changes are told to."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from webapp.accounts.models import Project, Team, User
from webapp.names import validate_name
from webapp.nightly import channels
from webapp.nightly.models import Change, Channel

HOURS = [("", "never")] + [(str(hour), f"{hour:02}:00") for hour in range(24)]


class DecisionForm(forms.Form):
    state = forms.ChoiceField(label="It is")
    assignee = forms.ModelChoiceField(User.objects.none(), required=False, empty_label="nobody")

    def __init__(self, team: Team, change: Change, data: Any = None) -> None:
        given = change.state if change.state in Change.DECISIONS else Change.State.OPEN
        super().__init__(data, initial={"state": given, "assignee": change.assignee_id})
        choices = [(state.value, state.label) for state in Change.DECISIONS]
        self.fields["state"].choices = choices  # type: ignore[attr-defined]
        self.fields["assignee"].queryset = team.members.order_by("username")  # type: ignore[attr-defined]


class CommentForm(forms.Form):
    text = forms.CharField(
        label="Say something", max_length=4000, widget=forms.Textarea(attrs={"rows": 3, "cols": 40})
    )


class ChannelForm(forms.Form):
    name = forms.CharField(max_length=80, validators=[validate_name])
    kind = forms.ChoiceField(label="By", choices=Channel.Kind.choices)
    address = forms.CharField(
        label="Address",
        max_length=2000,
        help_text="mailtos://user:password@example.org, slack://…, or https://… of a webhook. It is not "
        "shown again.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    quiet_from = forms.TypedChoiceField(
        label="Quiet from (UTC)", choices=HOURS, coerce=int, required=False, empty_value=None
    )
    quiet_to = forms.TypedChoiceField(
        label="until (UTC)", choices=HOURS, coerce=int, required=False, empty_value=None
    )

    def __init__(self, project: Project, data: Any = None, channel: Channel | None = None) -> None:
        """``channel`` is the one to change; without it a new one is made."""
        super().__init__(data)
        self.project, self.channel = project, channel or Channel(project=project)

    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"])
        if self.project.channels.filter(name=name).exclude(pk=self.channel.pk).exists():
            raise ValidationError(f"{name} is there already")
        return name

    def clean(self) -> dict[str, Any]:
        told: dict[str, Any] = super().clean() or {}
        if "address" in told and "kind" in told:
            try:
                channels.check_address(told["kind"], told["address"])
            except ValidationError as error:
                self.add_error("address", error)
        if (told.get("quiet_from") is None) != (told.get("quiet_to") is None):
            self.add_error("quiet_to", "name both ends of the quiet hours, or neither")
        return told

    def save(self, user: User) -> Channel:
        """A new webhook gets its secret here."""
        channel, is_new = self.channel, self.channel.pk is None
        for name, value in self.cleaned_data.items():
            setattr(channel, name, value)
        if is_new:
            channel.created_by = user
            channel.secret = channels.new_secret() if channel.kind == Channel.Kind.WEBHOOK else ""
        channel.save()
        return channel


class EditChannelForm(ChannelForm):
    """A channel to change on its page, where its address is not shown: one that is left empty stays."""

    def __init__(self, channel: Channel, data: Any = None) -> None:
        super().__init__(channel.project, data, channel)
        self.initial = {name: getattr(channel, name) for name in ("name", "kind", "quiet_from", "quiet_to")}
        self.fields["kind"].disabled = True
        address = self.fields["address"]
        address.required, address.label = False, "New address"
        address.help_text = "Empty: as it is, which is not shown."

    def clean_address(self) -> str:
        return str(self.cleaned_data["address"]) or self.channel.address
