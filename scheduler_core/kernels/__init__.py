"""Compiled loops (numba) for placement, ordered nodes and shared GPUs.

No decision is defined here that the readable modules do not define first. Called by `scheduler_core.sharing_placements`
and by the compiled engine of `pipelines.simulation`.
"""
