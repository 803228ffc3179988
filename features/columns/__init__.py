"""The feature functions, one noun a file: `request`, `calendar`, `recency`, `load`, `newest`, `measured`.

Each file ends in a dict of the features it defines; how frames and contracts are made of them is not here.
Called by `features.sets`, which joins the dicts, and by `features.build`.
"""
