"""Plans of jobs on nodes compiled (numba): made at random, improved move by move, walked from one to another.

Importing this imports numba; `scheduler_core.planning.cost.randomised` does so. The readable greedy is `cost.greedy`.
"""
