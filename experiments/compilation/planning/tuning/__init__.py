"""Spaces of schedules, features of loops, cost models and searches: what Ansor and AutoTVM share.

``session`` (ask, measure, tell) runs for replays of logs and for live benches; ``random_search`` is AutoTVM's
choice without a model and the baseline of every replay.
"""
