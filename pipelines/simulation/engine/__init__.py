"""Event-driven simulation of a cluster, in two engines with equal results.

`plain` calls the scheduler and is easy to read; `compiled` is fast (numba). No metric is computed here.
Called by `measures`, `energy`, the rest of `pipelines.simulation`, and the studies.
"""
