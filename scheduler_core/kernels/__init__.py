"""Compiled loops (numba) for placement, GPUs shared by device, and cost.

A readable module or test defines every decision first; the loops give the same results. Called by `queue`,
`sharing_placements`, `planning.cost` and the compiled engine of `pipelines.simulation`.
"""
