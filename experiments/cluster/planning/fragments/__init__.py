"""Nodes with parts of devices free, what placing a job there would leave, and what of it is a fragment."""
