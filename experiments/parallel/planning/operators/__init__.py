"""How each operator is divided among all devices: divisions, configurations, their costs, and searches over
them.
"""
