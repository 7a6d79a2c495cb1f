"""Cluster: which job runs where and when."""
