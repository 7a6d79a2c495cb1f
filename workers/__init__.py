"""The workers: Celery, the supervisor of trials and their sandbox."""
