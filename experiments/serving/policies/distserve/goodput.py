"""How many requests a second instances serve as wanted, by simulations at one rate after another."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from experiments.core.processes import map_in_processes
from experiments.core.rate_search import RateSearch
from experiments.serving.interface.phases import Instance, Site

#: By how much of itself the rate of a shape is known: what is compared are rates of different shapes.
PRECISION = 0.05

Key = TypeVar("Key", bound=Hashable)


class Option(NamedTuple, Generic[Key]):
    """Instances to look at: they serve ``bound`` at most, and what they serve counts ``weight`` times."""

    key: Key
    instances: tuple[Instance, ...]
    bound: float
    weight: float


class Found(NamedTuple):
    """Requests a second, after so many simulations."""

    rate: float
    simulations: int


@dataclass(frozen=True)
class Goodput:
    """Looks for the rate of instances with a share of requests ``wanted`` in time.

    ``processes`` change how long that takes and nothing else.
    """

    site: Site
    wanted: float
    processes: int = 1

    def find_all(
        self, options: Sequence[Option[Key]], is_hopeful: Callable[[float, float], bool]
    ) -> dict[Key, float]:
        """Return the requests a second of options, the highest bound first.

        Those are left out whose bound is not hopeful next to the best that was found until then. Processes
        look at several at once, and forget what would have been left out.
        """
        found, best = dict[Key, float](), 0.0
        left = sorted(options, key=lambda option: -option.bound)
        while left := [option for option in left if is_hopeful(option.bound, best)]:
            together, left = left[: self.processes], left[self.processes :]
            rates = self._search_each([one.instances for one in together])
            for option, (rate, simulations) in zip(together, rates, strict=True):
                if is_hopeful(option.bound, best):
                    self.site.note(simulations)
                    found[option.key] = rate
                    best = max(best, rate * option.weight)
        return found

    def find_each(self, several: Sequence[tuple[Instance, ...]]) -> list[float]:
        """Return the requests a second that each of ``several`` serves."""
        rates = self._search_each(several)
        self.site.note(sum(found.simulations for found in rates))
        return [found.rate for found in rates]

    def _search_each(self, several: Sequence[tuple[Instance, ...]]) -> list[Found]:
        return map_in_processes(self._search, several, self.processes, lambda: self.site.note(0))

    def _search(self, instances: tuple[Instance, ...]) -> Found:
        """Instances never serve more than they carry, whatever a finite sample says."""
        most = self.site.carried(instances)
        search = RateSearch(most, PRECISION)
        while (rate := search.next_load) is not None:
            attains = rate <= most and self.site.try_out(instances, rate).attainment >= self.wanted
            search.tell(rate, attains)
        return Found(search.low, sum(rate <= most for rate in search.attained))
