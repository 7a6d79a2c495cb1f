"""What several compilation policies decide with; it knows only the interface and plain records.

``substitutions``  rules over graphs: their algebra, verdicts, generation, matching and search.
``tiles``          operators as tensor expressions, their tiles, and what prices them.
``tuning``         spaces of schedules, features, cost models, searches, replay of logs.
``numerics``       quantization, calibration, bounds of rounding errors.
``blocks``         thread blocks of kernels and their placement on a device's units.
"""
