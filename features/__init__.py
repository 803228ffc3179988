"""What a job is, and what is known about it, when.

Holds the canonical tables, the features, the point-in-time history and the contract that travels with a model.
Imports no other package of taut; `pipelines` trains on what `build` makes, `modelserve` serves the same by `rows`.
"""
