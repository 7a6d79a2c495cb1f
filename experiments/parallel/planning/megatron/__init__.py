"""Transformers by tensor, pipeline and data parallelism: plans, their costs in closed form, and the search."""
