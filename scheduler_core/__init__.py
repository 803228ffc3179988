"""Scheduling decisions: shrink requests, order the queue, place gangs, run rounds, plan energy and cost.

Decides only: no clock, files, HTTP, JSON or global randomness, and no import of taut's other packages. Numpy, and numba
in `kernels`. `pipelines` simulates with it; `modelserve` answers recommendations with the same `shrink`.
"""
