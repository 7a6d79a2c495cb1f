"""Operators as tensor expressions, their tiles, and what a kernel of connected tiles moves and takes.

Roller and Welder build on all of it but this: ``from_graph`` and ``from_ops`` translate a model for the
simulator and for live runs, ``operators`` has the expressions that they, lists of operators and Roller's
tiled form are made of.
"""
