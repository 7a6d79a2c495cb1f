"""Operators as tensor expressions, their tiles, and what prices them on named hardware."""
