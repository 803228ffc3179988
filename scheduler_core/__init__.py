"""Thin core of a scheduler: shrink requests, order the queue, place gangs, simulate the outcome.

Python and numpy, numba in `compiled`, HTTP in `exchange`; no disk, no global randomness, nothing of taut's packages.
`pipelines` runs simulations with it; `modelserve` answers recommendations with the same `shrink`.
"""
