"""Experiments and their runs: the queue, the states, the results."""
