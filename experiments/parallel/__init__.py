"""Parallel: how a model and its step are spread over devices."""
