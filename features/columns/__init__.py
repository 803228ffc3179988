"""Definitions of all features, one file per source: `request`, `recency`, `load` and `newest`.

Each file ends with a dict of the features it defines. Feature frames and contracts are made elsewhere.
Called by `features.sets`, which joins the dicts, and by `features.build`.

To add one: declare it in the dict of its file and name it in a set of `features.sets`. A declaration that uses the
existing statistics serves both engines, frames and rows.
"""
