"""Definitions of all features, one file per source: `request`, `recency`, `load` and `newest`.

Each file ends with a dict of the features it defines. Feature frames and contracts are made elsewhere.
Called by `features.sets`, which joins the dicts, and by `features.build`.

To add a feature, declare it in the dict of its file and name it in a set of `features.sets`. If it uses existing
statistics, both engines (`features.build` and `features.rows`) can compute it.
"""
