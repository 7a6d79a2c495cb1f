"""Ended runs in columns: a second, narrow copy of what searches in groups read of a long history."""
