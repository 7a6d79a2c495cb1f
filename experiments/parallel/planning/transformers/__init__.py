"""Transformers by tensor, pipeline and data parallelism: their plans and how tensors are sharded."""
