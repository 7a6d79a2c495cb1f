"""What several compilation policies decide with; it knows only the interface and plain records.

``substitutions``  rules over graphs: their algebra, verdicts, generation, matching and search.
``tiles``          operators as tensor expressions, and what a kernel of connected tiles moves and takes.
``tuning``         spaces of schedules, features, cost models, searches, one session of asking and measuring.
``numerics``       quantization, calibration, bounds of rounding errors.
``blocks``         a step's ops as kernels of thread blocks: what rammer schedules and the simulator prices.
"""
