"""Measures the layers of a GPT on this host, in the terms by which steps are priced.

Each figure is one of five rounds over the whole grid (``rounds``), after calls that warm up. What a layer
does besides its named operators is its ``residual``: a whole step of one prompt less embedding, head,
attention and those operators. Attention of a prompt behind a context and of decodes is a whole step less
everything else. Where it runs for each request apart, what prompts and decodes take adds up; in one kernel
every pair of them is measured together. ``bookkeeping`` is what a step of the engine takes besides all that.

A GPU's operators are timed as many in a row as there are layers: it works one off while the next is launched.
"""

from __future__ import annotations

import csv
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from experiments.core.progress import Progress, part, silent
from experiments.models.gpt import Block
from experiments.serving.live.bookkeeping import ANSWER, Lengths, Price, Serve, measure_bookkeeping, middle_of
from experiments.serving.live.model import PagedGpt, Row, choose
from experiments.serving.live.rounds import combine
from experiments.serving.live.wall_clock import WallClock
from experiments.workloads.profiles.layer_times import AttentionTimes, Curve, LayerTimes, Steady

#: Rounds, and calls before a timed one: more in the first.
ROUNDS, FIRST_WARM_UPS, WARM_UPS = 5, 3, 3
SIZE = 16
#: A step of three tokens takes less than halfway from one of two to one of four.
TOKENS = (1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
SEQUENCES = (1, 2, 3, 4, 8, 16, 32, 64)
CHUNKS = (2, 6, 16, 64, 256, 1024)
#: Any context at all is masked by another kernel than none.
PROMPT_CONTEXTS = (0, 1, 256, 1024)
DECODES = (1, 2, 4, 16, 64)
CONTEXTS = (16, 128, 512, 1024)
#: Seconds of pauses, how often each is made in a round, and tokens of the step after one.
PAUSES, PAUSED, WOKEN = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1), 2, 64
MICROSECOND = 1e-6


def measure_layers(
    model: PagedGpt,
    longest: int,
    serve: Serve,
    price_by: Callable[[LayerTimes], Price],
    progress: Progress = silent,
) -> LayerTimes:
    """Measure everything up to ``longest`` tokens of a request or a step.

    ``serve`` is an engine, and ``price_by`` prices its steps by layers.
    """
    grid = _Grid(model, min(longest, model.positions))
    rounds = []
    for turn in range(ROUNDS):
        rounds.append(grid.measure(part(progress, turn / ROUNDS, (turn + 1) / ROUNDS)))
        grid.warm_ups = WARM_UPS
    times = combine(rounds)
    runs = measure_bookkeeping(model, serve, price_by(times), Lengths([WOKEN], ANSWER), ROUNDS)
    besides = middle_of(list(runs))
    kept = replace(besides, seconds=tuple(max(0.0, seconds) for seconds in besides.seconds))
    return replace(times, by_sequences={**times.by_sequences, "bookkeeping": kept})


def write_layers(times: LayerTimes, folder: Path) -> None:
    """Write ``dense.csv``, ``per_sequence.csv`` and ``attention.csv`` into ``folder``/tp1."""
    assert isinstance(times.attention, AttentionTimes), "this host's are measured together"
    target = folder / f"tp{times.ranks}"
    target.mkdir(parents=True, exist_ok=True)
    _write(target / "dense.csv", ("layer", "tokens", "time_us"), _rows(times.by_tokens))
    _write(target / "per_sequence.csv", ("layer", "sequences", "time_us"), _rows(times.by_sequences))
    names = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us")
    _write(target / "attention.csv", names, _attention_rows(times.attention))
    if times.wake:
        pauses = zip(times.wake.points, times.wake.seconds, strict=True)
        rows = [(round(pause / MICROSECOND), seconds / MICROSECOND) for pause, seconds in pauses]
        _write(target / "wake.csv", ("pause_us", "time_us"), rows)
    if times.attention.is_apart:
        (target / "meta.yaml").write_text("attention:\n  prompts: apart\n")


def _rows(curves: Mapping[str, Curve]) -> Iterable[tuple[object, ...]]:
    for layer, curve in curves.items():
        for point, seconds in zip(curve.points, curve.seconds, strict=True):
            yield layer, int(point), seconds / MICROSECOND


def _attention_rows(times: AttentionTimes) -> Iterable[tuple[object, ...]]:
    for (chunk, count), steady in times.groups.items():
        for context, curve in zip(steady.contexts, steady.curves, strict=True):
            for point, seconds in zip(curve.points, curve.seconds, strict=True):
                yield chunk, int(context), count, int(point), seconds / MICROSECOND


def _write(path: Path, names: Sequence[str], rows: Iterable[tuple[object, ...]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(rows)


class _Grid:
    """The points of a model that fit into ``longest`` tokens."""

    def __init__(self, model: PagedGpt, longest: int) -> None:
        self.model, self.longest = model, longest
        #: Calls of one operator that are timed together.
        self.together = model.layers if model.on_cuda else 1
        blocks = -(-longest // SIZE) + 1
        self.memory = model.memory(blocks * (max(DECODES) + 1), SIZE)
        self.blocks = blocks
        self.block: Block = model.body.blocks[0]  # type: ignore[assignment]
        self.warm_ups = FIRST_WARM_UPS

    def measure(self, progress: Progress) -> LayerTimes:
        """Return one round: differences may be below nothing."""
        heads = self.by_sequences()
        dense = self.by_tokens(heads["lm_head"], progress)
        progress(0.6, "timing attention")
        attention = self.attention(dense, heads["lm_head"])
        progress(0.9, "timing steps after a pause")
        name = f"this host, {self.model.layers} layers"
        return LayerTimes(name, 1, dense, heads, attention, wake=self.wake())

    def wake(self) -> Curve:
        """How much longer a step takes after a pause: the model has left the caches."""
        clock = WallClock()
        row = self.row(0, min(WOKEN, self.longest), 0)
        warm = self._step([row])
        later = [0.0]
        for pause in PAUSES[1:]:
            woken = [self._step_after(pause, clock, row) for _ in range(PAUSED)]
            later.append(statistics.fmean(woken) - warm)
        return Curve(PAUSES, tuple(later))

    def _step_after(self, pause: float, clock: WallClock, row: Row) -> float:
        clock.reach(clock.reach(0.0) + pause)
        began = time.perf_counter()
        with torch.inference_mode():
            self.model.run([row], self.memory)
        self.model.finish()
        return time.perf_counter() - began

    def row(self, place: int, tokens: int, context: int) -> Row:
        own = range(place * self.blocks, (place + 1) * self.blocks)
        return Row([1] * tokens, context, list(own), 1)

    def by_tokens(self, head: Curve, progress: Progress) -> dict[str, Curve]:
        points = _within(TOKENS, self.longest)
        rows: dict[str, list[float]] = {}
        for done, tokens in enumerate(points):
            progress(0.5 * done / len(points), f"timing layers on {tokens} tokens")
            for name, seconds in self._layers(tokens, head).items():
                rows.setdefault(name, []).append(seconds)
        return {name: Curve(tuple(map(float, points)), tuple(found)) for name, found in rows.items()}

    def _layers(self, tokens: int, head: Curve) -> dict[str, float]:
        model, block, row = self.model, self.block, self.row(0, tokens, 0)
        x = model.embed(model.index([row], SIZE))
        normed, mixed = block.norm1(x), x.clone()
        wide = block.expand(normed)
        activated = block.activation(wide)
        parts: Mapping[str, Callable[[], object]] = {
            "layernorm": lambda: block.norm1(x),
            "qkv_proj": lambda: block.attention.qkv(normed),
            "o_proj": lambda: block.attention.project(mixed),
            "gate_up_proj": lambda: block.expand(normed),
            "act_fn": lambda: block.activation(wide),
            "down_proj": lambda: block.contract(activated),
        }
        found = {name: self._seconds(call, self.together) for name, call in parts.items()}
        once = self._seconds(lambda: model.embed(model.index([row], SIZE)))
        layer = (self._step([row]) - once - float(head.at(1.0))) / model.layers
        named = sum(found.values()) + found["layernorm"] + self._attend([row])
        return {**found, "residual": layer - named, "embedding": once, "final_layernorm": 0.0}

    def by_sequences(self) -> dict[str, Curve]:
        points = _within(SEQUENCES, max(DECODES))
        head, sampler = [], []
        for count in points:
            rows = [self.row(place, 1, 0) for place in range(count)]
            x = torch.zeros(count, self.model.width, dtype=self.model.dtype, device=self.model.device)
            logits = self.model.logits(x, rows)
            head.append(self._seconds(lambda x=x, rows=rows: self.model.logits(x, rows)))  # type: ignore[misc]
            sampler.append(self._seconds(lambda logits=logits: choose(logits)))  # type: ignore[misc]
        axis = tuple(map(float, points))
        return {
            "lm_head": Curve(axis, tuple(head)),
            "sampler": Curve(axis, tuple(sampler)),
        }

    def attention(self, dense: Mapping[str, Curve], head: Curve) -> AttentionTimes:
        def layer(rows: Sequence[Row]) -> float:
            """Seconds of one layer's attention, and what belongs to it of the rest of the step."""
            tokens = float(sum(len(row.ids) for row in rows))
            each = {name: float(curve.at(tokens)) for name, curve in dense.items()}
            others = sum(each.values()) + each["layernorm"] - each["embedding"]
            step = self._step(rows) - each["embedding"] - float(head.at(float(len(rows))))
            return step / self.model.layers - others

        if self.model.in_one:
            return AttentionTimes(dict(self._together(layer)))
        prompts = {one: layer([self.row(0, *one)]) for one in self._prompts()}
        decodes = {(n, c): layer(self._decodes(n, c)) for n in DECODES for c in self._contexts()}
        return AttentionTimes(dict(_combined(prompts, decodes)), is_apart=True)

    def _prompts(self) -> list[tuple[int, int]]:
        """Tokens of a prompt and its context."""
        return [
            (chunk, context)
            for chunk in _within(CHUNKS, self.longest)
            for context in PROMPT_CONTEXTS
            if context == 0 or chunk + context <= self.longest
        ]

    def _contexts(self) -> list[int]:
        return _within(CONTEXTS, self.longest - 1)

    def _decodes(self, count: int, context: int) -> list[Row]:
        return [self.row(place, 1, context) for place in range(count)]

    def _together(self, layer: Callable[[Sequence[Row]], float]) -> Iterable[tuple[tuple[int, int], Steady]]:
        """Every prompt next to all numbers of decodes, in blocks of its own."""
        by_chunk: dict[int, list[int]] = {0: [0]}
        for chunk, context in self._prompts():
            by_chunk.setdefault(chunk, []).append(context)
        for chunk, before in by_chunk.items():
            for count in (0, *DECODES) if chunk else DECODES:
                axis = self._contexts() if count else [0]
                curves = []
                for context in before:
                    prompt = [self.row(max(DECODES), chunk, context)] if chunk else []
                    seconds = (layer([*prompt, *self._decodes(count, each)]) for each in axis)
                    curves.append(Curve(tuple(map(float, axis)), tuple(seconds)))
                yield (chunk, count), Steady(tuple(map(float, before)), tuple(curves))

    def _step(self, rows: Sequence[Row]) -> float:
        return self._seconds(lambda: self.model.run(rows, self.memory))

    def _attend(self, rows: Sequence[Row]) -> float:
        """Seconds of one layer's attention by itself."""
        model = self.model
        tokens = sum(len(row.ids) for row in rows)
        dim = model.width // model.heads
        q = torch.zeros(tokens, model.heads, dim, dtype=model.dtype, device=model.device)
        step = model.index(rows, SIZE)
        return self._seconds(lambda: model.attend(0, q, step, self.memory), self.together)

    @torch.inference_mode()
    def _seconds(self, call: Callable[[], object], together: int = 1) -> float:
        """Seconds of a call, of so many in a row."""
        begin = 0.0
        for _ in range(self.warm_ups + 1):
            self.model.finish()
            begin = time.perf_counter()
            for _ in range(together):
                call()
        self.model.finish()
        return (time.perf_counter() - begin) / together


def _combined(
    prompts: Mapping[tuple[int, int], float], decodes: Mapping[tuple[int, int], float]
) -> Iterable[tuple[tuple[int, int], Steady]]:
    """Every pair of prompts and decodes, each of which may be missing."""
    by_chunk: dict[int, dict[int, float]] = {0: {0: 0.0}}
    for (chunk, context), seconds in prompts.items():
        by_chunk.setdefault(chunk, {})[context] = seconds
    by_count: dict[int, dict[int, float]] = {0: {0: 0.0}}
    for (count, context), seconds in decodes.items():
        by_count.setdefault(count, {})[context] = seconds
    for chunk, rows in by_chunk.items():
        for count, columns in by_count.items():
            if chunk or count:
                curves = tuple(
                    Curve(tuple(map(float, columns)), tuple(base + more for more in columns.values()))
                    for base in rows.values()
                )
                yield (chunk, count), Steady(tuple(map(float, rows)), curves)


def _within(points: Sequence[int], most: int) -> list[int]:
    """The points up to ``most``, which is one itself where it lies between them."""
    found = [point for point in points if point <= most]
    return found if found and (found[-1] == most or most > points[-1]) else [*found, most]
