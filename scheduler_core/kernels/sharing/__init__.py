"""GPUs device by device, compiled (numba): six placements' scores, kept by machine and shape, and a cluster filled up.

Importing this imports numba; `sharing_placements` and `inflation` do so. The readable versions are in the tests.
"""
