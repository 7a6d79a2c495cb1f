"""A rank that never answers."""

import time

time.sleep(3600)
