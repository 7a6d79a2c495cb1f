"""Pages of job and request traces, before anything runs: ``jobs``, ``job_groups``, ``requests``."""
