"""Compilation: how a graph is rewritten and lowered before it runs."""
