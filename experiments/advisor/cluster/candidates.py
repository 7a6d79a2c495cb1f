"""A plan for several devices: its degrees, the policy and knobs that carry it out, and what is predicted."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from experiments.core.spec import RunSpec, Workload
from experiments.parallel.planning.transformers.plan import Degrees

#: Degrees with a knob of another name in Megatron's policy.
KNOB_NAMES = {"sequence": "sequence_parallel"}
#: Fields of a layout that the advisor does not look at stay at the policy's default.
SEARCHED = (
    *("tensor", "pipeline", "interleaved", "micro_batch", "context", "sequence", "recompute", "zero"),
    *("expert", "host_optimizer"),
)


@dataclass(frozen=True)
class Candidate:
    """A plan on ``nodes`` nodes, with what closed forms say of it.

    ``step_time`` (seconds) and ``peak_memory`` (bytes of the fullest device) are ``None`` where they say
    nothing. ``saves_operators``: of what is recomputed, attention and every second product are kept (FSDP's
    selective checkpointing).
    """

    layout: Degrees
    nodes: int
    devices: int
    batch: int
    step_time: float | None = None
    peak_memory: float | None = None
    saves_operators: bool = False

    @property
    def divides_data_alone(self) -> bool:
        one = self.layout
        return one.tensor == one.pipeline == one.expert == one.context == 1

    @property
    def replicas(self) -> int:
        return self.layout.replicas(self.devices) * self.layout.mesh.joined

    @property
    def micro_batches(self) -> int:
        """Of each pipeline, or of each device."""
        return self.layout.micro_batches(self.devices, self.batch)

    @property
    def policy(self) -> str:
        """The system whose plan it is."""
        if not self.divides_data_alone or self.layout.recompute == "selective":
            return "megatron"
        return "fsdp" if self.layout.zero == 3 and not self.layout.host_optimizer else "zero"

    @property
    def knobs(self) -> dict[str, Any]:
        layout = self.layout
        if self.policy == "fsdp":
            recompute = "selective" if self.saves_operators else layout.recompute
            return {"micro_batches": self.micro_batches, "recompute": recompute}
        if self.policy == "zero":
            parts = {"micro_batches": self.micro_batches, "recompute": layout.recompute != "none"}
            return {"stage": layout.zero, **parts, "host_optimizer": layout.host_optimizer}
        values = asdict(layout)
        return {KNOB_NAMES.get(name, name): values[name] for name in SEARCHED}

    @property
    def division(self) -> tuple[Any, ...]:
        """What it divides, and whether blocks are recomputed.

        Plans that share it differ in chunks, in micro-batches, in attention cores and in where the optimizer
        is.
        """
        one = self.layout
        degrees = self.nodes, one.tensor, one.pipeline, one.context, one.expert, one.zero
        return *degrees, one.recompute in ("blocks", "full"), self.saves_operators

    @property
    def work(self) -> int:
        """About how many passes over a chunk a simulator carries out."""
        lanes = self.layout.replicas(self.devices) * self.layout.pipeline
        return lanes * 2 * self.micro_batches * self.layout.interleaved

    @property
    def with_saved_operators(self) -> Candidate | None:
        """The same with selective checkpointing in the place of whole blocks, where FSDP carries it out."""
        if self.policy != "fsdp" or self.layout.recompute != "blocks":
            return None
        return replace(self, saves_operators=True, step_time=None, peak_memory=None)

    def spec(self, workload: Workload, hardware: Any) -> RunSpec:
        """Return the run that carries it out."""
        return RunSpec("parallel", self.policy, workload, hardware, self.knobs)
