"""Carries plans of kernels out on a modelled device."""
