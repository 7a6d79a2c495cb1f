"""Searches that planners of the parallel family share: plain functions over layers and levels of a cluster."""
