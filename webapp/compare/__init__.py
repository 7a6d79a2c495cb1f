"""Comparison of runs and tables for papers."""
