"""Read a booster's trees from its file, with every bound checked, and compile them to predict a row in microseconds.

No features and no bundles here. Called by `modelserve.bundle.boosters`, `modelserve.bundle.bundle` and
`modelserve.loading`.
"""
