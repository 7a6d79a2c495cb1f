"""Carries out plans by the rules of the G10 artifact's simulator, see ``interface.artifact``."""
