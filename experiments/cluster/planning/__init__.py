"""What at least two schedulers decide with, and what the simulator shares with them.

fragments     nodes with parts of devices free, choosing one for a job, and what idle parts are of no use
agents        what jobs that choose their batch measure and expect of themselves
placing       devices for demands, of which unchanged ones keep theirs
performance   how fast jobs run on what they are given: one model for each kind of knowledge
contests       the question that a divider of time is asked, from jobs, machines and speeds
interior_point linear programs solved from within
queue_shares   first in, first out as shares of time
time_programs  linear programs over shares of time on types of devices
turns          whose turn it is, so that over time each gets its share
"""
