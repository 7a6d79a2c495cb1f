"""Spaces of schedules, features of loops, cost models, searches, and the replay of recorded logs."""
