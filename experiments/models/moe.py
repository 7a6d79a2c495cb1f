"""A GPT whose feed-forward layers are mixtures of experts (GShard, Lepikhin et al. 2021; Switch, Fedus et al.
2022).

Each expert takes its ``capacity`` best-scored tokens of a batch (Expert Choice, Zhou et al. 2022), so that
every shape is known before the step runs: 2 tokens' worth of work per token, as with top-2 gating at capacity
factor 1. Expert choice sees later tokens of the batch; that changes no cost, but a model trained so would
need its paper's care.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from experiments.models.gpt import Gpt
from experiments.models.model import Geometry, InputSpec, Model, Objective, classification

EXPERTS_PER_TOKEN = 2


class Experts(nn.Module):
    """A layer of experts, [batch, tokens, width] to the same.

    Gate, gather, two batched products over experts, weighted scatter.
    """

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.expand = nn.Parameter(torch.empty(experts, width, 4 * width))
        self.contract = nn.Parameter(torch.empty(experts, 4 * width, width))
        for weight in (self.expand, self.contract):
            nn.init.normal_(weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        experts = len(self.expand)
        capacity = max(1, min(len(rows), len(rows) * EXPERTS_PER_TOKEN // experts))
        weights, chosen = self.gate(rows).softmax(-1).t().topk(capacity, dim=1)
        taken = rows[chosen.reshape(-1)].view(experts, capacity, -1)
        made = torch.nn.functional.gelu(taken @ self.expand) @ self.contract
        made = (made * weights.unsqueeze(-1)).view(experts * capacity, -1)
        return torch.zeros_like(rows).index_add(0, chosen.reshape(-1), made).view_as(x)


def moe(
    geometry: Geometry, layers: int, width: int, heads: int, vocabulary: int, positions: int, experts: int
) -> Model:
    """Every second block's feed-forward becomes ``experts`` experts."""
    body = Gpt(layers, width, heads, vocabulary, positions)
    for block in body.blocks[1::2]:
        block.expand = Experts(width, experts)
        block.activation = nn.Identity()
        block.contract = nn.Identity()
    shape = (geometry.batch, geometry.sequence)
    batch = (InputSpec("ids", shape, vocabulary), InputSpec("target", shape, vocabulary))
    return Model(Objective(body, classification), batch)
