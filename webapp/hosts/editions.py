"""What must be the same on every host for the same run to give the same figures."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from experiments.run import revision, versions

#: A torch for CUDA and one for processors are one release of it; its name ends at the "+".
COMPARED = ("revision", "experiments", "torch", "numpy", "scipy")


@functools.cache
def here() -> dict[str, str]:
    """This process's own; a checkout that changes under it does not change what it runs."""
    return {"revision": revision(), **versions()}


def difference(host: Mapping[str, str], lab: Mapping[str, str]) -> str:
    """What differs between two that tell so of themselves, by name; "" where nothing does."""
    told = [name for name in COMPARED if name in host and name in lab]
    names = [name for name in told if _release(host[name]) != _release(lab[name])]
    theirs, ours = (" and ".join(f"{name} {_release(of[name])[:12]}" for name in names) for of in (host, lab))
    return f"this host has {theirs}, the lab {ours}" if names else ""


def _release(version: str) -> str:
    return version.partition("+")[0]
