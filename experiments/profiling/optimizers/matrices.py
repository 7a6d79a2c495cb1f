"""Which parameters are matrices between the embeddings and the output."""

from __future__ import annotations

from torch import nn


def hidden_matrices(module: nn.Module) -> frozenset[str]:
    """Return the names of matrices that are no embedding and not the output layer of a vocabulary.

    The output layer has as many rows as the largest table; without a table every matrix is hidden.
    """
    tables = [part for part in module.modules() if isinstance(part, nn.Embedding)]
    embeddings = {id(table.weight) for table in tables}
    words = max((table.num_embeddings for table in tables), default=0)
    return frozenset(
        name
        for name, value in module.named_parameters()
        if value.dim() == 2 and id(value) not in embeddings and value.shape[0] != words
    )
