"""What policies decide with that place models on groups of devices, and dispatch to the shortest queue.

``shortest_queue``  the group that is done first, and rejection of what would be late anyway.
``evaluator``       the attainment of a placement on a sample, many times a second.
``replicas``        which models get another replica, and where.
"""
