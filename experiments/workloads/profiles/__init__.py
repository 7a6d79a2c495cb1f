"""How fast the models of a job trace run on what: one file for each kind of measurement.

A kind is a frozen dataclass; ``experiments.readers.job_profiles`` reads it from side files of a trace, and a
performance model of ``experiments.cluster.planning.performance`` answers from it: the one
that ``speeds`` names.
"""
