"""The verbs of ``python -m experiments``: each module has ``add(subparsers)`` and says what to run."""
