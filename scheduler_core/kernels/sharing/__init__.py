"""Compiled placement with GPUs shared by device: placement scores, cached per machine and shape of demand.

Importing this package imports numba. Tests hold equivalent readable Python. Called by `sharing_placements` and by the
fragmentation study.
"""
