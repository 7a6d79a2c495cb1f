"""Operators divided along the axes of a mesh: layouts, partitions and what changes of layout cost."""
