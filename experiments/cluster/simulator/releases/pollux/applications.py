"""What the release says of single applications, beside the measurements in its folder ``traces``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

#: As ``BatchLimits`` names them: yolov3 has room for 8 samples on a T4; ncf always trains alone on one GPU,
#: at its largest batch where the policy might choose.
LIMITS: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {"yolov3": {"most_each": 8}, "ncf": {"most_gpus": 1, "wanted": 32768}}
)
