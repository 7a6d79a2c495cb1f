"""Numbers in fewer bits, in numpy alone: what a policy decides and a live run is held to.

``quantization`` (schemes and codes) and ``calibration`` (ranges of activations) are shared by quantize and
the live runs that carry out and judge its codes; ``bounds`` of rounding errors also by mixed_precision.
"""
