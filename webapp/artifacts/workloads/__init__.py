"""Pages of job and request traces, before anything runs: ``jobs`` and ``requests`` say what is shown."""
