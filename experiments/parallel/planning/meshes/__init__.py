"""Operators on meshes of devices: layouts, partitions and what resharding costs."""
