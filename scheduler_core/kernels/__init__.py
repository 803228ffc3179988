"""Compiled loops (numba) for placement, GPUs shared by device, and cost.

For every loop there is readable Python, in a module or a test, that gives the same results. Called by `queue`,
`sharing_placements`, `planning.cost` and the compiled engine of `pipelines.simulation`.
"""
