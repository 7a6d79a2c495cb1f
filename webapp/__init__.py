"""The dashboard: Django."""
