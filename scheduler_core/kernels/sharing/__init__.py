"""Compiled placement with GPUs shared by device: placement scores, cached per machine and shape of demand.

Importing this package imports numba. Called by `sharing_placements` and by the fragmentation study; equivalent readable
Python is in the tests.
"""
