"""Compiled search over plans of jobs on nodes (numba): random plans, single moves, path relinking, look-ahead.

Called by `scheduler_core.planning.cost`, whose `greedy` is the same greedy in plain Python. Its modules import numba.
"""
