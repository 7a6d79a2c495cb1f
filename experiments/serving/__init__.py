"""Serving: which requests run together, and where models live."""
