"""Compiled search for cheap plans of jobs on nodes (numba): random plans, moves, path relinking, look-ahead.

Called by `scheduler_core.planning.cost`. Importing its modules imports numba.
"""
