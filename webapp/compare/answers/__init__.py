"""What a comparison says in words.

``case`` sorts the runs of one question, ``words`` makes phrases, ``causes`` groups what fell out, and each
family has a module with ``headline`` and ``sentences``.
"""
