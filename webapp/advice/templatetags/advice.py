"""The address of a question that was asked."""

from __future__ import annotations

from urllib.parse import urlencode

from django import template

from webapp.advice.forms import address_of
from webapp.advice.models import Advice

register = template.Library()


@register.simple_tag
def advice_address(advice: Advice) -> str:
    """``artifact=3&hardware=dgx-h100&nodes=1&goal=time``, behind the question mark."""
    return urlencode(address_of(advice))
