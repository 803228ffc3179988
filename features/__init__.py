"""Features of jobs, computed from what is known at submission. Imports no other package of taut.

Two engines compute them: `build` makes frames for training, `rows` makes rows for serving, bit-identical.
"""
