"""Predicted against measured: a grid of models and policies on this host, family by family.

Each cell is a model and a policy. What a policy plans is simulated on times of this host (predicted) and
carried out by torch (measured). The evidence file says how far apart they are; the Hosts page reads it. Needs
nothing but torch, numpy and scipy.

A family is one module with ``models(device)``, its grid's models and their options, and ``cells(device,
progress, chosen)``.
"""

from __future__ import annotations

from experiments.validate.evidence import FAMILIES, validate

__all__ = ["FAMILIES", "validate"]
