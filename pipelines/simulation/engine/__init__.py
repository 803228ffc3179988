"""Two engines for one simulation: `plain` is readable and runs the scheduler, `compiled` runs the same in numba.

No metric is computed here. Called by `pipelines.simulation` and `pipelines.studies`.
"""
