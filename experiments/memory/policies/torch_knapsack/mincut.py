"""Which forward tensors to save so that the backward pass can be fed: a minimum cut through the forward
graph.

Every tensor is a pair of nodes with its weight between them; a tensor leads to those made from it. What
cannot or must not run again hangs on the source, what the backward pass reads on the sink: the tensors cut
are the ones to save.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

#: Sum of all weights after scaling: scipy's flows are 32-bit integers.
WHOLE = 10**9
ENDLESS = 2**31 - 1


@dataclass(frozen=True)
class ForwardGraph:
    """Tensors in topological order, what each is made from, those the backward pass reads, and bytes.

    ``free`` are tensors that stay anyway (parameters, the batch): saving them costs nothing.
    """

    tensors: Sequence[int]
    parents: Mapping[int, Sequence[int]]
    needed: Collection[int]
    bytes: Mapping[int, int]
    free: Collection[int]

    def distances(self) -> dict[int, int]:
        """Steps from each tensor to the backward pass: 1 for what it reads."""
        far = 10**6
        found = {t: 1 if t in self.needed else far for t in self.tensors}
        for tensor in reversed(self.tensors):
            for parent in self.parents[tensor]:
                found[parent] = min(found[parent], found[tensor] + 1)
        return found

    def weights(self) -> dict[int, float]:
        """Return the bytes of nodes, heavier the further away they are from the backward pass.

        By 1.1 for each step (1 to 100 steps), as torch's partitioner.
        """
        distance = self.distances()
        return {
            t: 0.0 if t in self.free else self.bytes[t] * 1.1 ** min(max(distance[t], 1), 100)
            for t in self.tensors
        }

    def minimum_cut(self, banned: Collection[int]) -> list[int]:
        """The cheapest tensors to save when those ``banned`` do not run again; free ones are not listed."""
        position = {tensor: i for i, tensor in enumerate(self.tensors)}
        count = len(position)
        source, sink = 2 * count, 2 * count + 1
        weight = self.weights()
        scale = WHOLE / max(1.0, sum(weight.values()))
        edges: list[tuple[int, int, int]] = []
        for tensor, i in position.items():
            edges.append((2 * i, 2 * i + 1, max(1, round(weight[tensor] * scale)) if weight[tensor] else 0))
            edges += [(2 * position[parent] + 1, 2 * i, ENDLESS) for parent in self.parents[tensor]]
            if tensor in banned or tensor in self.free or not self.parents[tensor]:
                edges.append((source, 2 * i, ENDLESS))
            if tensor in self.needed:
                edges.append((2 * i + 1, sink, ENDLESS))
        near = _near_side(edges, 2 * count + 2, source, sink)
        return [t for t, i in position.items() if near[2 * i] and not near[2 * i + 1] and t not in self.free]


def _near_side(
    edges: Sequence[tuple[int, int, int]], count: int, source: int, sink: int
) -> npt.NDArray[np.bool_]:
    """Nodes that residual capacity still joins to ``source`` once the flow is at its maximum."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    starts, ends, capacities = np.array(edges, np.int64).T
    graph = csr_array((capacities.astype(np.int32), (starts, ends)), (count, count))
    flow = maximum_flow(graph, source, sink).flow
    residual = (graph.astype(np.int64) - flow.astype(np.int64)) > 0
    reached = breadth_first_order(residual, source, return_predecessors=False)
    near = np.zeros(count, np.bool_)
    near[reached] = True
    return near
