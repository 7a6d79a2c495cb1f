"""Operators as tensor expressions, and tiles constructed for them on named hardware (Roller, Welder)."""
