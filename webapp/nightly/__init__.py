"""Scheduled suites and their history."""
