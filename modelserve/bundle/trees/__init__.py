"""A booster's trees: read from its file with every bound checked, and compiled to predict one row in microseconds.

No features and no bundles here. Called by `modelserve.bundle.boosters`, `modelserve.bundle.bundle` and
`modelserve.loading`.
"""
