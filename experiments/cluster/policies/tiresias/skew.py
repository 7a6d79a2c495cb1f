"""Which models must run on few machines: those of which one tensor is most of the model (section 3.4).

Large tensors go over the network in one piece, so such a model slows down when it is scattered. Skew is taken
to be the largest tensor over the whole model (the paper's profiler measures messages). Sizes are those of the
authors' simulator, in MiB; a model that is not among them may be skewed, so it is consolidated too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

#: Largest tensor and all tensors.
SIZES: Mapping[str, tuple[float, float]] = {
    "vgg19": (392.0, 547.1),
    "vgg16": (392.0, 526.8),
    "vgg11": (392.0, 506.5),
    "alexnet": (144.0, 235.8),
    "resnet152": (9.0, 149.6),
    "resnet101": (9.0, 119.7),
    "resnet50": (9.0, 80.6),
    "inception4": (5.9, 132.8),
    "inception3": (7.8, 56.6),
}


def skew(model: str) -> float | None:
    """Return the largest tensor's part of a model; ``None`` where its sizes are not known."""
    sizes = SIZES.get(re.sub(r"[^a-z0-9]", "", model.lower()))
    return None if sizes is None else sizes[0] / sizes[1]


def placement_for(model: str, limit: float) -> str:
    """Return the rule for a job: consolidated above ``limit``, else on whatever fragments are free."""
    found = skew(model)
    return "consolidate" if found is None or found > limit else "count"
