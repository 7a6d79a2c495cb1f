"""What the address of the catalog may ask for: ``?q=vdnn&family=memory&year=2016&verdict=reproduced``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms

from experiments.core.policy import FAMILIES
from experiments.core.verdicts import VERDICTS
from webapp.papers.catalog import System


class CatalogForm(forms.Form):
    q = forms.CharField(
        required=False, max_length=80, label="Name, title, venue, author or what it decides contains"
    )
    family = forms.ChoiceField(
        required=False, choices=[("", "any family"), *((name, name) for name in FAMILIES)]
    )
    year = forms.ChoiceField(required=False)
    verdict = forms.ChoiceField(
        required=False, choices=[("", "any verdict"), *((name, name) for name in VERDICTS)]
    )

    def __init__(self, data: Any, found: Sequence[System]) -> None:
        super().__init__(data)
        years = sorted({system.paper.year for system in found if system.paper}, reverse=True)
        self.fields["year"].choices = [("", "any year"), *((str(y), str(y)) for y in years)]  # type: ignore[attr-defined]
        self.fields["q"].widget = forms.TextInput(
            attrs={"type": "search", "placeholder": "name, title, venue, author, what it decides"}
        )

    @property
    def asked(self) -> dict[str, Any]:
        """What the address asks for; what it asks wrongly is passed over."""
        self.is_valid()
        return {name: value for name, value in self.cleaned_data.items() if value}

    def chosen(self, found: Sequence[System], *passed_over: str) -> list[System]:
        """Those that the address asks for, whatever it says of the fields ``passed_over``."""
        asked = {name: value for name, value in self.asked.items() if name not in passed_over}
        return [system for system in found if _matches(system, asked)]


def _matches(system: System, asked: dict[str, Any]) -> bool:
    paper = system.paper
    return (
        asked.get("q", "").lower() in system.words
        and asked.get("family") in ("", None, system.family)
        and asked.get("year") in ("", None, str(paper.year) if paper else "-")
        and (asked.get("verdict") in ("", None) or asked["verdict"] in system.verdicts)
    )
