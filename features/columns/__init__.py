"""The feature functions, one noun a file: `request`, `recency`, `load`, `newest`.

Each file ends in a dict of the features it defines; frames and contracts are made elsewhere.
Called by `features.sets`, which joins the dicts, and by `features.build`.
"""
