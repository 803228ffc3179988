"""Scheduling decisions: shrink requests, order the queue, place gangs, run rounds, plan energy and cost.

Functions here only decide: they use no clock, files, HTTP, JSON or global randomness, and import no other package of
taut. They need numpy, and numba in `kernels`. `pipelines` simulates schedulers with this package, and `modelserve`
serves recommendations of the same `shrink`.
"""
