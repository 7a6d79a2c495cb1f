"""Schedules of blocks carried out: lanes (threads, or streams of a GPU) that work off lists of parts of ops.

``division``  which axes of a result an op can be computed along, and what of its operands a part reads.
``works``     a graph's ops as a scheduling policy sees them, with the rates of this host.
``program``   the lists of the lanes, and how one part of an operator is computed.
``lanes``     threads with latches; streams with events.
``recipe``    the policy's schedule as a recipe of the backend ``rtasks``.
"""
