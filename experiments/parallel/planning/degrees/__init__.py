"""Every Megatron plan of a transformer on a cluster in closed form, thousands a second.

``search`` looks at all degrees and keeps the fastest that fits, ``analytic`` has the time of a step and
``peaks`` its memory, with an entry for each plan of ``columns``.
"""
