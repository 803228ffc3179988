"""Thin core of a scheduler: shrink requests, order the queue, place gangs, simulate the outcome.

Pure Python and numpy; no disk, no clock, no global randomness, and nothing of taut's other packages.
`pipelines` runs simulations with it; `modelserve` answers recommendations with the same `shrink`.
"""
