"""Uploaded models and traces, and what was derived from them."""
