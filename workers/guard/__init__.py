"""The small programs between the supervisor and a trial: one sets limits and watches, one puts up the last of
the walls and becomes the trial.

Standard library only, started as ``python -S -m workers.guard``: it must be up in milliseconds.
"""
