"""Compiled placement with GPUs shared by device: scores of placements, cached by machine and shape.

Importing this imports numba. Called by `sharing_placements` and by the study of fragmentation; the readable versions
are in the tests.
"""
