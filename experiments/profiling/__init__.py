"""Capturing and timing a training step with torch."""
