"""ModelSource: a model not yet built: a zoo name, a configuration or a graph, and the options of its step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.workloads.hf import dropouts
from experiments.workloads.program import GraphProgram

#: Kernels of a captured step: one for each op, or as ``torch.compile`` makes them.
EAGER, COMPILED = "eager", "compiled"


@dataclass(frozen=True)
class ModelSource:
    """A model before it is built: from the zoo, an exported graph or a configuration.

    ``zoo`` names a builder of ``experiments.models``; else ``program`` is an exported graph; else ``config``
    is a parsed HF ``config.json``. Its step runs the batch in ``micro_batches`` equal parts, one after
    another. ``sizes`` are arguments of the zoo's builder that differ from the zoo's.
    """

    name: str
    zoo: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    options: WorkloadOptions = field(default_factory=WorkloadOptions)
    program: GraphProgram | None = field(default=None, repr=False)
    micro_batches: int = 1
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def kernels(self) -> str:
        """Return what kernels a captured step runs; ``BadInput`` for kernels that a capture does not have."""
        given = self.options.kernels
        if given not in ("auto", EAGER, COMPILED):
            what = f"kernels {given!r} are those of a transformer in closed form; {self.name} is captured"
            raise BadInput(what, "options.kernels", f"auto, {EAGER} or {COMPILED}")
        return COMPILED if given == COMPILED else EAGER

    @property
    def draws_dropout(self) -> bool:
        """Whether the step has the configuration's own dropout."""
        return self.options.training and self.options.dropout is not False and bool(dropouts(self.config))

    def identity(self) -> dict[str, Any]:
        """What decides which model this is and what its step looks like, as JSON.

        A graph stands as its file's hash.
        """
        found: dict[str, Any] = {
            "name": self.name,
            "zoo": self.zoo,
            "config": self.config,
            "options": asdict(self.options),
        }
        if self.program is not None:
            found["program"] = [self.program.format, self.program.sha256]
        if self.micro_batches > 1:
            found["micro_batches"] = self.micro_batches
        if self.sizes:
            found["sizes"] = dict(self.sizes)
        return found
