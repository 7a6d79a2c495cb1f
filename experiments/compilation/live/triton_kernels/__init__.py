"""Triton kernels: compiled on a GPU, carried out by Triton's interpreter in a child process elsewhere.

``kernels`` holds the device code, ``launch`` calls it on torch tensors, ``interpreter`` lends the launches to
a process that has no GPU, ``tuning`` chooses a matmul's blocks by timing. Triton is imported by the first two
only, when they are; it comes with CUDA builds of torch and is not needed otherwise.
"""
