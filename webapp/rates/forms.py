"""What is asked of a rate, as the comparison's panel sends it."""

from __future__ import annotations

from collections.abc import Sequence

from django import forms

from experiments.core.rate_search import RateGoal


class RateForm(forms.Form):
    """A share of requests in time, the tail of the time between tokens, or both."""

    attainment = forms.FloatField(required=False, min_value=1, max_value=100)
    tbt_p99 = forms.FloatField(required=False, min_value=1e-3, max_value=1e6)
    policies = forms.MultipleChoiceField(required=False)

    def __init__(self, data: object, policies: Sequence[str]) -> None:
        super().__init__(data)  # type: ignore[arg-type]
        self.fields["policies"].choices = [(name, name) for name in policies]  # type: ignore[attr-defined]

    @property
    def goal(self) -> RateGoal:
        """Per cent and milliseconds of the page as the domain has them."""
        share, between = self.cleaned_data["attainment"], self.cleaned_data["tbt_p99"]
        return RateGoal(share and share / 100, between and between / 1000)
