"""Features of jobs, computed from what is known at submission.

Holds the canonical tables, the features, the point-in-time history and the feature contract stored with a model. Two
engines compute the features: `build` makes frames for training, and `rows` makes rows for serving. Both give
bit-identical values, which `tests/features/test_rows.py` checks. Imports no other package of taut.
"""
