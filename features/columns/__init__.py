"""Definitions of all features, one file per source: `request`, `recency`, `load` and `newest`.

Each file ends with a dict of the features it defines; `features.sets` joins the dicts.

To add a feature, declare it in the dict of its file and name it in a set of `features.sets`. If it uses existing
statistics, both engines (`features.build` and `features.rows`) can compute it.
"""
