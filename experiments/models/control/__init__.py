"""Models whose control flow is part of the program: loops, branches and recursion as modules that can be
found.
"""
