"""Instances as they stand: each a view over its own KV blocks, with what it sends and receives."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from experiments.serving.interface.paged import PagedView
from experiments.serving.interface.phases.arrangement import Instance
from experiments.serving.interface.step_load import Entry


@dataclass
class InstanceView(PagedView):
    """``known`` and ``computed`` are shared by all instances: a request is at one of them at a time.

    ``flying``      requests inside the pipeline, which no other step can take.
    ``departing``   requests whose prompt is done and whose KV stays until it is copied.
    ``incoming``    requests that are to come, in the order in which they were sent.
    ``due_tokens``  tokens of the prompts that wait or are being computed.
    ``grown``       tokens of answers that passes under way have given since ``known`` was counted.
    """

    instance: Instance = field(kw_only=True)
    place: int = field(kw_only=True)
    flying: int = 0
    departing: set[int] = field(default_factory=set)
    incoming: deque[int] = field(default_factory=deque)
    arriving: set[int] = field(default_factory=set)
    due_tokens: int = 0
    grown: int = 0

    @property
    def resident(self) -> int:
        """Requests that are answered here, in the pipeline or between two passes."""
        return len(self.running) + self.flying

    @property
    def load(self) -> int:
        """Requests that are answered here or will be."""
        return self.resident + len(self.arriving) + len(self.incoming)

    @property
    def kv_load(self) -> int:
        """Tokens of the requests whose KV is here, or has to come."""
        return self.grown + sum(self.known[request] for request in (*self.held, *self.incoming))

    @property
    def fair_share(self) -> int:
        """Requests of a pass that keeps every stage of the pipeline busy."""
        return -(-self.resident // self.instance.shape.pipeline)

    def enter_pipeline(self) -> None:
        """The filled pass begins: no other one can take its requests."""
        for entry in self.entries:
            self.running.remove(entry.request)
        self.flying += len(self.entries)

    def leave_pipeline(self, entries: Sequence[Entry]) -> None:
        """A pass is through all stages."""
        self.flying -= len(entries)
        self.running.extend(entry.request for entry in entries)

    def enqueue(self, request: int) -> None:
        """A prompt comes."""
        self.waiting.append(request)
        self.due_tokens += self.known[request]

    def depart(self, request: int) -> None:
        """The prompt is done here; its blocks stay until they are copied."""
        self.running.remove(request)
        self.departing.add(request)

    def release(self, request: int) -> None:
        """Its KV has arrived elsewhere."""
        self.departing.remove(request)
        self.pool.release(self.held.pop(request))

    def receive(self, request: int) -> bool:
        """Takes blocks for the KV of ``request`` and its next token; ``False`` where they are missing."""
        need = self.pool.blocks_for(self.known[request])
        if need > self.pool.free:
            return False
        self.held[request] = self.pool.take(need)
        self.arriving.add(request)
        return True

    def drop(self, request: int) -> None:
        """Its KV is needed no more as it arrives."""
        self.arriving.remove(request)
        self.pool.release(self.held.pop(request))

    def join(self, request: int) -> None:
        """Its KV is here: it is answered from now on."""
        self.arriving.remove(request)
        self.running.append(request)


@dataclass
class PhaseView:
    """All instances at a moment; ``goal`` has the instance that answers a request, once it is chosen."""

    prompt: Sequence[int]
    instances: Sequence[InstanceView]
    goal: dict[int, int] = field(default_factory=dict)
    now: float = 0.0
