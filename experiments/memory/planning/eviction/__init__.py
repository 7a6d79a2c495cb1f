"""A step run in a budget that evicts and recomputes as it goes: the run (``online``), the prices of what may
leave (``neighborhood``), what is resident (``storages``), and a run written down as a plan (``journal``).
"""
