"""Attention within the documents of a packed sample, without a mask.

Documents are equally long. The sequence of queries, keys and values is seen as so many samples of a document
each, which is a view of the same memory: as with kernels for sequences of varying length (FlashAttention's
``varlen``, FlexAttention's block mask) nothing of tokens x tokens is stored, nothing outside the documents
computed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from experiments.core.errors import BadInput

#: The name of this attention among those of ``transformers``.
DOCUMENTS = "documents"


def divide(value: Tensor, document: int) -> Tensor:
    """[batch, heads, tokens, size] as [batch x documents, heads, document, size]."""
    batch, heads, tokens, size = value.shape
    parts = value.transpose(1, 2).reshape(batch * (tokens // document), document, heads, size)
    return parts.transpose(1, 2)


def positions(tokens: int, document: int, device: torch.device) -> Tensor:
    """Of a packed sample: each document's count from 0."""
    return torch.arange(document, device=device).repeat(tokens // document)


def attend_within(
    length: int, module: Any, query: Tensor, key: Tensor, value: Tensor, options: dict[str, Any]
) -> tuple[Tensor, None]:
    """Compute ``transformers``' attention, each ``length`` tokens for themselves."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    q, k, v = (divide(states, length) for states in (query, key, value))
    mixed, _ = sdpa_attention_forward(module, q, k, v, None, **options)
    return mixed.reshape(query.shape[0], query.shape[2], *mixed.shape[2:]), None


def attend_within_documents(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Compute attention document by document; the model's config has their length."""
    document = int(module.config.document)
    window = options.get("sliding_window")
    if window is not None and document > window:
        what = f"document {document} is longer than the window of {window} tokens"
        raise BadInput(what, "options.document", f"at most {window}")
    return attend_within(document, module, query, key, value, options)


def divide_documents(config: Any, document: int) -> None:
    """Let a model that is built from ``config`` attend within documents of this length."""
    from transformers import AttentionInterface

    AttentionInterface.register(DOCUMENTS, attend_within_documents)
    config.document = document
    config._attn_implementation = DOCUMENTS
