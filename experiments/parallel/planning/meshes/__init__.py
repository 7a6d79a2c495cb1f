"""Operators on meshes of devices: layouts, what resharding costs, propagation and programs that choose."""
