"""What a workload can be asked: the families that read it, the policies of each, and why not the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.core import registry
from experiments.core.policy import EFFORTS, FAMILIES, Policy
from experiments.core.reading import NOUNS

SIMULATED = ("simulated",)
Told = Mapping[str, Any]


@dataclass(frozen=True)
class Offer:
    """A family as a question about the chosen workloads; ``needs`` says what it reads where it reads none."""

    family: str
    needs: str

    @property
    def is_open(self) -> bool:
        return not self.needs


def offers_for(kinds: Sequence[str], told: Sequence[Told] = ()) -> list[Offer]:
    """Every family, those first that have a policy for workloads of these kinds, with what they ``told``."""
    found = [Offer(family, _lack_of_all(family, kinds, told)) for family in FAMILIES]
    return sorted(found, key=lambda offer: not offer.is_open)


def _lack_of_all(family: str, kinds: Sequence[str], told: Sequence[Told]) -> str:
    """What every policy of the family needs and the workloads lack; empty where one can be asked."""
    known = registry.family_policies(family).values()
    lacks = [lack_of(policy, told, (mode,)) for policy in known for mode in modes_on(policy, kinds)]
    return "" if not all(lacks) else lacks[0].removeprefix("needs ") if lacks else _needs(family)


def _needs(family: str) -> str:
    return read_by(*registry.family_policies(family).values())


def read_by(*policies: type[Policy]) -> str:
    """What any of them reads: ``a model or a memory trace``."""
    kinds = {kind for policy in policies for mode in policy.modes for kind in policy.workloads.get(mode, ())}
    return " or ".join(noun for kind, noun in NOUNS.items() if kind in kinds)


def modes_on(policy: type[Policy], kinds: Iterable[str]) -> tuple[str, ...]:
    """How the policy can be carried out on a workload of one of these kinds."""
    return tuple(m for m in policy.modes if not set(kinds).isdisjoint(policy.workloads.get(m, ())))


def lack_of(policy: type[Policy], told: Iterable[Told], modes: Sequence[str]) -> str:
    """What the policy needs and some of the workloads lacks, in words; empty where it lacks nothing."""
    lacks = policy.lacks_live if modes and "simulated" not in modes else policy.lacks
    return next((words for one in told if (words := lacks(one))), "")


def try_all(
    family: str, kinds: Sequence[str] = (), modes: Sequence[str] = SIMULATED, told: Sequence[Told] = ()
) -> list[str]:
    """What *Try all* means everywhere: each policy of the family that these workloads can be asked in one of
    these modes; what the others are compared with first, and searches last, so that nobody waits for them.

    Without ``kinds`` for any workload. ``told`` is what the workloads' summaries say that they have.
    """
    known = registry.family_policies(family).values()
    asked = [p for p in known if not set(modes_on(p, kinds) if kinds else p.modes).isdisjoint(modes)]
    asked = [policy for policy in asked if not lack_of(policy, told, modes)]
    ordered = sorted(asked, key=lambda policy: (not policy.is_baseline, EFFORTS.index(policy.effort)))
    return [f"{family}/{policy.name}" for policy in ordered]
