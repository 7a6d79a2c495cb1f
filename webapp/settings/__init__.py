"""Settings: ``base`` for all, ``local`` for ``./lab up``, ``test`` for the tests, ``deployment``
for a team.
"""
