"""Will it fit: what a training step of a model needs, part by part, next to every device's memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from experiments import hardware
from experiments.core.errors import BadInput
from experiments.core.options import OPTIMIZERS, TRAINING_FORMS
from experiments.core.precision import PRECISIONS, describe_states, state_bytes, states_note
from experiments.core.units import human, significant
from webapp.artifacts.laws import Known, law_for
from webapp.artifacts.models import Artifact
from webapp.artifacts.step_options import spell_out_options
from webapp.runs.models import Run
from webapp.runs.question import step_in_words

#: As it is; only with a policy that moves or computes again; not with any that keeps tensors whole.
FITS, WITH_POLICY, NEVER = "fits", "policy", "never"
#: Whose memory the sentence speaks of until another is chosen.
USUAL_DEVICE = "rtx-4090-24g"
#: Largest values that the sliders and the address may ask for.
MOST = {"batch": 4096, "sequence": 2**20}
#: What may be chosen next to them, and how the model is trained: a name of ``TRAINING_FORMS``.
CHOICES: Mapping[str, tuple[str, ...]] = {"precision": PRECISIONS, "optimizer": OPTIMIZERS}
TRAINED, FULL = "trained", "full"
ASKED = (*MOST, *CHOICES)


def as_percent(share: float) -> str:
    """A width as style sheets have it."""
    return f"{100 * share:.2f}%"


@dataclass(frozen=True)
class Part:
    name: str
    bytes: float
    share: float

    @property
    def grow(self) -> str:
        return f"{self.share:.5f}"


@dataclass(frozen=True)
class DeviceRow:
    """A device's memory, also as a share of the widest bar; ``words`` say how the step stands to it, ``over``
    how many bytes it has too many.
    """

    name: str
    capacity: float
    state: str
    words: str
    percent: str
    is_chosen: bool
    over: float


@dataclass(frozen=True)
class Parameters:
    """A kind of module: its parameters in all, as a share of the model's, and in each of ``times``."""

    module: str
    times: int
    parameters: int
    each: float
    share: float

    @property
    def grow(self) -> str:
        return f"{self.share:.5f}"

    @property
    def percent(self) -> str:
        return f"{100 * self.share:.1f} %" if self.share >= 0.0005 else "below 0.1 %"


@dataclass(frozen=True)
class Fit:
    """The answer for one step; while no capture tells its activations it has model states alone."""

    model: str
    options: Mapping[str, Any]
    trained: str
    longest: int | None
    device: str
    known: Known
    peak: float
    least: float
    parts: tuple[Part, ...]
    devices: tuple[DeviceRow, ...]
    states: str
    tried: int
    fitting: int

    @property
    def step(self) -> str:
        """The step in words, as a run of it would say."""
        said = step_in_words(self.options)
        return said if self.trained == FULL else f"{said}, {self.trained}"

    @property
    def is_captured(self) -> bool:
        """Whether the whole of its memory is known."""
        return self.known.law is not None

    @property
    def address(self) -> str:
        """What the address says of it."""
        sizes = {f"option:{name}": self.options[name] for name in ASKED if self.options.get(name)}
        return urlencode({"devices": self.device, **sizes, TRAINED: self.trained})

    @property
    def chosen(self) -> DeviceRow | None:
        return next((row for row in self.devices if row.is_chosen), None)

    @property
    def peak_percent(self) -> str:
        """Where the step stands on the scale of the bars."""
        return as_percent(self.peak / max([self.peak, *(row.capacity for row in self.devices)]))

    def count(self, state: str) -> int:
        return sum(row.state == state for row in self.devices)

    @property
    def counts(self) -> tuple[tuple[str, str, int], ...]:
        words = ((FITS, "as it is"), (WITH_POLICY, "with a policy"), (NEVER, "not at all"))
        return tuple((state, said, self.count(state)) for state, said in words)


def parameters_of(model: Artifact) -> list[Parameters]:
    """Its modules with parameters, as its reading counted them."""
    held = model.summary.get("parameters") or ()
    total = sum(one["parameters"] for one in held)
    return [
        Parameters(
            one["module"],
            one["times"],
            one["parameters"],
            one["parameters"] / one["times"],
            one["parameters"] / total,
        )
        for one in held
    ]


def fit_of(model: Artifact, asked: Mapping[str, str]) -> Fit | None:
    """The answer for what the address asks (``devices``, ``option:batch``, ``option:sequence``,
    ``option:precision``, ``option:optimizer``, ``trained``), else for the step that the model has by default;
    ``None`` where no parameters are known.
    """
    if not _has_parameters(model):
        return None
    device = asked.get("devices", "") if asked.get("devices") in hardware.names() else USUAL_DEVICE
    return fit_with(model, read_options(model, asked), device)


def read_options(model: Artifact, asked: Mapping[str, str]) -> dict[str, Any]:
    """The options of the step that an address asks for, with nothing left open."""
    form = TRAINING_FORMS.get(asked.get(TRAINED, FULL), {})
    chosen = {name: asked.get(f"option:{name}", "") for name in CHOICES}
    said = {name: value for name, value in chosen.items() if value in CHOICES[name]}
    usual = spell_out_options(model, {**said, **form})
    return {**usual, **_read_sizes(asked, usual)}


def fit_with(model: Artifact, options: Mapping[str, Any], device: str = USUAL_DEVICE) -> Fit | None:
    """The answer for a step whose ``options`` leave nothing open."""
    if not _has_parameters(model):
        return None
    known, trained = law_for(model, options), _name_form(options)
    states, per_parameter = _states(options) if trained == FULL else ("", 0.0)
    if known.law is None:
        parameters = sum(one["parameters"] for one in model.summary["parameters"])
        parts, least = {"model states": per_parameter * parameters}, 0.0
    else:
        sizes = int(options["batch"]), int(options.get("sequence") or 0)
        parts, least = known.law.parts(*sizes), known.law.least(*sizes)
    peak = sum(parts.values())
    tried, fitting = _count_tried(model, options, device)
    return Fit(
        describe_model(model),
        options,
        trained,
        model.summary.get("longest"),
        device,
        known,
        peak,
        least,
        tuple(Part(name, size, size / peak) for name, size in parts.items() if size),
        tuple(_devices(peak, least, device)) if known.law else (),
        states,
        tried,
        fitting,
    )


def _has_parameters(model: Artifact) -> bool:
    return model.kind == "model" and bool(model.summary.get("parameters"))


def _name_form(options: Mapping[str, Any]) -> str:
    """``full``, ``LoRA``, ``QLoRA``; of other forms what trains."""
    given = {name: options[name] for form in TRAINING_FORMS.values() for name in form if name in options}
    named = next((name for name, form in TRAINING_FORMS.items() if form == given), "")
    return named or str(options.get("adapter", FULL))


COUNTS = ((1e9, " B"), (1e6, " M"), (1e3, " k"))
#: Cards of a configuration that count its layers.
LAYERS = ("num hidden layers", "n layer")


def describe_model(model: Artifact) -> str:
    """``qwen2, 1.54 B parameters, 28 layers``; empty where no parameters are known."""
    parameters = sum(one["parameters"] for one in model.summary.get("parameters") or ())
    if not parameters:
        return ""
    cards = {row["label"]: row["value"] for row in model.summary.get("cards", ())}
    size, unit = next((row for row in COUNTS if parameters >= row[0]), (1.0, ""))
    layers = [f"{cards[name]} layers" for name in LAYERS if name in cards]
    kind = str(cards.get("model type") or model.name)
    return ", ".join([kind, f"{significant(parameters / size)}{unit} parameters", *layers[:1]])


def _read_sizes(asked: Mapping[str, str], base: Mapping[str, Any]) -> dict[str, int]:
    """Batch and sequence of the address; what is no such number is left out."""
    found = {}
    for name, most in MOST.items():
        text = asked.get(f"option:{name}", "").strip()
        if base.get(name) and text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= most:
            found[name] = int(text)
    return found


def _states(options: Mapping[str, Any]) -> tuple[str, float]:
    """What training keeps for a parameter, in words and bytes; nothing where its optimizer keeps more than
    tensors of the weights' shape.
    """
    try:
        states = state_bytes(options["dtype"], options["optimizer"], options["precision"])
    except (BadInput, KeyError):
        return "", 0.0
    note = states_note(states, options["precision"])["states"]
    return describe_states(note), float(sum(states.parts.values()))


def _devices(peak: float, least: float, chosen: str) -> list[DeviceRow]:
    """Every accelerator's sheet, the largest memory first; a processor has the host's."""
    sheets = hardware.accelerators()
    widest = max([peak, *sheets.values()])
    ordered = sorted(sheets.items(), key=lambda row: (-row[1], row[0]))
    return [_device(name, memory, peak, least, widest, chosen) for name, memory in ordered]


def _device(name: str, memory: float, peak: float, least: float, widest: float, chosen: str) -> DeviceRow:
    if peak <= memory:
        state, words = FITS, f"as it is, {human(memory - peak, 'bytes')} free"
    elif least <= memory:
        state, words = WITH_POLICY, f"only with a policy, {human(peak - memory, 'bytes')} over"
    else:
        state, words = NEVER, f"not at all: one operation needs {human(least, 'bytes')}"
    return DeviceRow(name, memory, state, words, as_percent(memory / widest), name == chosen, peak - memory)


def _count_tried(model: Artifact, options: Mapping[str, Any], device: str) -> tuple[int, int]:
    """How many memory policies were simulated for just this question, and how many of them fit."""
    found = Run.objects.policies_by_answer(model, "memory", device, options)
    fitting = found[Run.State.SUCCEEDED]
    return len(fitting | found[Run.State.INFEASIBLE]), len(fitting)
