"""Ingest of a user's own job tables, described by a mapping file: files or query, columns and units.

A mapping is converted to a `Source` like those of `pipelines.lake.sources` and loaded in the same way.
"""
