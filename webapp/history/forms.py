"""Forms of tags and saved views."""

from __future__ import annotations

from django import forms
from django.core.exceptions import ValidationError

from webapp.history.models import LONGEST_COMMENT, LONGEST_NOTE, TAG, TAG_IN_WORDS
from webapp.names import validate_name


class TagForm(forms.Form):
    name = forms.CharField(label="Tag", max_length=40)

    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"]).strip()
        if not TAG.fullmatch(name):
            raise ValidationError(f"a tag is {TAG_IN_WORDS}")
        return name


class ViewForm(forms.Form):
    name = forms.CharField(max_length=80, validators=[validate_name])
    query = forms.CharField(max_length=4000, required=False)
    columns = forms.CharField(max_length=1000, required=False)
    shared = forms.BooleanField(required=False)


class NoteForm(forms.Form):
    """Markdown; an empty one takes the note away."""

    text = forms.CharField(max_length=LONGEST_NOTE, required=False, strip=True, label="Note")


class CommentForm(forms.Form):
    text = forms.CharField(max_length=LONGEST_COMMENT, strip=True, label="Comment")
