"""Jobs and their features as known at submission.

Holds the canonical tables, the features, the point-in-time history and the contract stored with a model. Two engines
compute the features: `build` makes frames for training, `rows` makes rows for serving. They agree to the bit, which
`tests/features/test_rows.py` checks. Imports no other package of taut.
"""
