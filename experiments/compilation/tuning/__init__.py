"""Kernel tuners: spaces of schedules, features, cost models, searches, and the replay of recorded logs."""
