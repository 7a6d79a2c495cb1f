"""Exhaustive answers to small cases, which benchmarks and tests hold the planners against."""
