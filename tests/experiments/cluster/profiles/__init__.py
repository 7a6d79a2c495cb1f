"""Profiles of models for jobs written by hand: a module for each performance model, with ``profiles_for``."""
