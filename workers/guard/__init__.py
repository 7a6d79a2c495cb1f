"""The small program between the supervisor and a trial: sets limits, confines where bubblewrap cannot, then
runs it.

Standard library only, started as ``python -S -m workers.guard``: it must be up in milliseconds.
"""
