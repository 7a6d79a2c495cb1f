"""What at least two schedulers decide with, and what the simulator shares with them.

performance   how fast jobs run on what they are given: one model for each kind of knowledge
"""
