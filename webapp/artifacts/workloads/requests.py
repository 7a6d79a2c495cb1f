"""What the requests of a trace ask for, and what follows for the model that the address says serves them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from experiments import hardware
from experiments.core.units import DTYPE_BYTES, human, significant
from experiments.models.served import DEFAULT, SERVED, ServedModel
from webapp.artifacts.models import Artifact
from webapp.artifacts.profile.words import percent_of

#: Type of weights and of what is kept of a token, as serving runs have it where nothing is said.
DTYPE = "float16"
#: Share of a device's memory for weights and tokens, as serving runs have it.
USABLE = 0.9
#: Variance of counts over their mean from which arrivals are called bursty; 1 is chance alone.
BURSTY = 1.5


@dataclass(frozen=True)
class DeviceRow:
    """One kind of accelerator: how many hold the weights, and the requests of mean length next to them."""

    name: str
    memory: float
    devices: int
    tokens: int
    requests: float


@dataclass(frozen=True)
class RequestLoad:
    """The arrivals as stored (``told``); ``model`` serves, named ``chosen`` in addresses."""

    told: Mapping[str, Any]
    model: ServedModel
    chosen: str
    choices: tuple[tuple[str, str], ...]

    @property
    def rate(self) -> float:
        return self.told["requests"] / self.told["span"] if self.told["span"] else 0.0

    def tokens_per_second(self, which: str) -> float:
        return self.rate * float(self.told[which]["mean"])

    @property
    def kv_bytes(self) -> int:
        """Bytes kept for each token of a request."""
        return self.model.kv_bytes_per_token(DTYPE_BYTES[DTYPE])

    @property
    def kv_request(self) -> float:
        """Bytes kept for a request of mean length when it ends."""
        return self.kv_bytes * float(self.told["both"]["mean"])

    @property
    def weights(self) -> float:
        return self.model.parameters * DTYPE_BYTES[DTYPE]

    @property
    def flops(self) -> float:
        """FLOP/s asked for: two for each parameter and token, attention left out."""
        return (
            2 * self.model.parameters * (self.tokens_per_second("prompt") + self.tokens_per_second("output"))
        )

    @property
    def headline(self) -> str:
        told, rate = self.told, significant(self.rate)
        return f"{told['requests']:,} requests over {human(told['span'], 's')}, {rate} a second:"

    @property
    def finding(self) -> str:
        prompt, output = (significant(self.tokens_per_second(which)) for which in ("prompt", "output"))
        prefix = self.told["prefix"]
        shared = f"; {percent_of(prefix['share'], 1.0)} of prompt tokens repeat a prefix" if prefix else ""
        return f"{prompt} prompt and {output} output tokens a second{shared}."

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(self._reasons())

    def _reasons(self) -> Iterator[str]:
        told = self.told
        prompt, output = (told[which]["quantiles"] for which in ("prompt", "output"))
        yield (
            f"Half the prompts have at most {prompt[0]:,.0f} tokens, one in twenty more than "
            f"{prompt[1]:,.0f}; outputs {output[0]:,.0f} and {output[1]:,.0f}."
        )
        yield from self._bursts()
        yield from self._sessions()
        longest, context = told["both"]["most"], self.model.context
        if longest > context:
            yield f"✗ The longest request has {longest:,} tokens, {self.model.name} takes {context:,}."

    def _bursts(self) -> Iterator[str]:
        if self.told["clock_step"]:
            yield f"Arrivals are told in steps of {human(self.told['clock_step'], 's')}."
        if not self.told["windows"]:
            return
        worst = max(self.told["windows"], key=lambda row: row["dispersion"])
        kind = "bursty" if worst["dispersion"] > BURSTY else "about as even as chance"
        first = self.told["windows"][0]
        yield (
            f"Arrivals are {kind}: over {human(worst['seconds'], 's')} their number varies "
            f"{significant(worst['dispersion'])} times as much as a Poisson process's, and the fullest "
            f"{human(first['seconds'], 's')} has {significant(first['peak'] * first['seconds'])} requests."
        )

    def _sessions(self) -> Iterator[str]:
        told = self.told.get("sessions")  # not told of traces that were read before sessions were counted
        if not told:
            return
        later = (
            f", the next one {human(told['gap'], 's')} after the one before in the median"
            if told["gap"]
            else ""
        )
        yield (
            f"{told['sessions']:,} sessions have {significant(told['mean'])} requests each, at most "
            f"{told['most']:,}{later}; {percent_of(told['alone'], 1.0)} have one."
        )

    @property
    def devices(self) -> list[DeviceRow]:
        """Every accelerator's sheet, the largest memory first."""
        rows = [self._device(name, memory) for name, memory in hardware.accelerators().items()]
        return sorted(rows, key=lambda row: (-row.memory, row.name))

    def _device(self, name: str, memory: float) -> DeviceRow:
        usable = USABLE * memory
        count = int((self.weights + self.kv_bytes) // usable) + 1
        tokens = int((count * usable - self.weights) / self.kv_bytes)
        return DeviceRow(name, memory, count, tokens, tokens / self.told["both"]["mean"])

    @property
    def ages(self) -> list[tuple[float, float]]:
        """(seconds since the last use, share of prompt tokens that are spared)."""
        prefix = self.told["prefix"]
        return [(age, share) for age, share in prefix["ages"]] if prefix else []


def load_of(trace: Artifact, asked: Mapping[str, str]) -> RequestLoad | None:
    """``None`` for what is no request trace, or was read before arrivals were stored."""
    told = trace.summary.get("arrivals")
    if trace.kind != "requests" or not told:
        return None
    known = _models(trace)
    chosen = asked.get("model", "") if asked.get("model", "") in known else usual_model(trace)
    names = tuple((name, model.name) for name, model in known.items())
    return RequestLoad(told, known[chosen], chosen, names)


def usual_model(trace: Artifact) -> str:
    """The model that serves a trace where nobody names one: the usual one, or the smallest of the lab's that
    takes its longest request. Where none does the usual one.
    """
    told = trace.summary.get("arrivals")
    longest = told["both"]["most"] if told else 0
    taking = [model for model in SERVED.values() if model.context >= longest]
    if SERVED[DEFAULT] in taking or not taking:
        return DEFAULT
    return min(taking, key=lambda model: model.parameters).name


def _models(trace: Artifact) -> dict[str, ServedModel]:
    """Models by the name that a run's option ``model`` takes: the lab's own, and those of the project."""
    uploads = Artifact.objects.of(trace.project).ready().filter(kind="model", summary__has_key="served")
    rows = uploads.order_by("-pk").values_list("pk", "name", "summary__served")[:100]
    own = {f"artifact:{pk}": ServedModel(**{**served, "name": name}) for pk, name, served in rows}
    return {**SERVED, **own}
