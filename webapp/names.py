"""What a name is: text on one line with something to see in it. The one rule for whatever people name."""

from __future__ import annotations

import unicodedata
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

#: Letters and symbols that are drawn as nothing: fillers of Hangul and the empty Braille cell.
EMPTY = frozenset("\u115f\u1160\u2800\u3164\uffa0")
#: Marks that turn the direction of the text around them, and so what it seems to say.
TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
#: Categories of control characters, half characters, and ends of lines and paragraphs.
NO_LINE = frozenset({"Cc", "Cs", "Zl", "Zp"})
BLANK = "A name needs a character that can be seen."
UNREADABLE = "A name is one line of text, without control characters."


def validate_name(text: str) -> None:
    """``ValidationError`` for a name of blanks, or with what no line of text has."""
    if not is_seen(text):
        raise ValidationError(BLANK, code="blank")
    if any(unicodedata.category(one) in NO_LINE or one in TURNING for one in text):
        raise ValidationError(UNREADABLE, code="unreadable")


def is_name(text: str) -> bool:
    """Whether ``validate_name`` takes it."""
    try:
        validate_name(text)
    except ValidationError:
        return False
    return True


def is_seen(text: str) -> bool:
    """Whether it has a letter, number, sign or symbol."""
    return any(unicodedata.category(one)[0] in "LNPS" and one not in EMPTY for one in text)


class NameField(forms.CharField):
    """A name that somebody gives to something."""

    def __init__(self, *, max_length: int, **options: Any) -> None:
        super().__init__(max_length=max_length, **options)
        self.validators.append(validate_name)
