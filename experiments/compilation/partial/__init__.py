"""Partially equivalent programs of a convolution: expressions, boxes of right and wrong elements, corrections (PET)."""
