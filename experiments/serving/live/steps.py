"""Steps over KV blocks carried out by torch: what an engine asks for its policy takes as long as it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from experiments.serving.interface.paged import PagedView
from experiments.serving.interface.step_load import Entry, StepLoad
from experiments.serving.live.kv import KvMemory
from experiments.serving.live.model import PagedGpt, Row, choose
from experiments.serving.live.wall_clock import WallClock


@dataclass
class LiveView(PagedView):
    """A view whose blocks are memory: what leaves for the host is copied there, and back."""

    memory: KvMemory = field(kw_only=True)
    copies: dict[int, Tensor] = field(default_factory=dict)

    def swap_out(self, request: int) -> bool:
        blocks = list(self.held[request])
        if not super().swap_out(request):
            return False
        self.copies[request] = self.memory.copy_out(blocks)
        return True

    def swap_in(self, request: int) -> bool:
        if not super().swap_in(request):
            return False
        self.memory.copy_in(self.held[request], self.copies.pop(request))
        return True


class TorchSteps:
    """Carries steps out in ``blocks`` of ``size`` tokens; requests come by ``clock``.

    ``timed`` are the loads of its steps, and when each began and ended.
    """

    def __init__(
        self,
        model: PagedGpt,
        blocks: int,
        size: int,
        prompts: Sequence[Sequence[int]],
        clock: WallClock | None = None,
    ) -> None:
        self.model, self.memory = model, model.memory(blocks, size)
        self.clock = clock or WallClock()
        self.reach = self.clock.reach
        self.tokens = [list(ids) for ids in prompts]
        self.prompts = [len(ids) for ids in prompts]
        self.timed: list[tuple[StepLoad, float, float]] = []
        self._drafts: dict[int, list[int]] = {}
        self._chosen: dict[int, list[int]] = {}

    def view(self, **fields: Any) -> PagedView:
        return LiveView(memory=self.memory, **fields)

    def answers(self, view: PagedView) -> list[list[int]]:
        """Return the tokens that every request was answered with."""
        self._take_up(view)
        return [ids[prompt:] for ids, prompt in zip(self.tokens, self.prompts, strict=True)]

    def carry_out(self, view: PagedView, load: StepLoad, now: float, most: int) -> npt.NDArray[np.float64]:
        """Make the one step that is filled: the next may be another."""
        self._take_up(view)
        self._drafts = {request: self._draft(request, count) for request, count in view.drafted.items()}
        rows = [self._row(view, entry) for entry in view.entries]
        found = self.model.run(rows, self.memory)
        self.model.finish()
        chosen = choose(found)
        self._chosen = {
            entry.request: tokens for entry, tokens in zip(view.entries, chosen, strict=True) if tokens
        }
        began, end = self.clock.end_step()
        self.timed.append((load, began, end))
        return np.array([end])

    def _take_up(self, view: PagedView) -> None:
        """The engine has booked what came out of the last step: those tokens are known now."""
        for request, chosen in self._chosen.items():
            ids = self.tokens[request]
            ids += chosen[: view.known[request] - len(ids)]
        self._chosen = {}

    def _row(self, view: PagedView, entry: Entry) -> Row:
        request, count, context = entry
        drafts = self._drafts.get(request, [])
        ids = [*self.tokens[request][context : context + count - len(drafts)], *drafts]
        is_last = view.computed[request] == view.known[request]
        wanted = (1 + len(drafts)) if is_last else 0
        return Row(ids, context, view.held[request], wanted)

    def _draft(self, request: int, count: int) -> list[int]:
        """What followed the last token where it stood before: a bigram model of the request's own tokens."""
        ids = self.tokens[request]
        for place in range(len(ids) - 2, -1, -1):
            if ids[place] == ids[-1]:
                found = ids[place + 1 : place + 1 + count]
                return found + [ids[-1]] * (count - len(found))
        return [ids[-1]] * count

    def right_drafts(self, view: PagedView, request: int) -> int:
        drafts, tokens = self._drafts[request], self._chosen[request]
        return next((n for n, draft in enumerate(drafts) if draft != tokens[n]), len(drafts))

    def steps_beyond(self, load: StepLoad, steps: int) -> int:
        return 0
