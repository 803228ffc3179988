"""Simulation of a cluster: engines, metrics, energy accounts, settings and result files.

Modules of this folder may import `energy`, `energy` may import `measures`, and `measures` may import `engine`, but not
the other way round.
"""
