"""Scheduling rules and searches in the subset of Python that numba compiles; no import here needs numba."""
