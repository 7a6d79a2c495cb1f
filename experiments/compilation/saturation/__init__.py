"""Equality saturation: all rewrites of a graph at once in an e-graph, then the cheapest graph that it holds."""
