"""Own job tables into the lake: a mapping file names the columns, their units, and the files or query with the rows.

A mapping becomes a declaration like those of `pipelines.lake.sources` and is loaded the same way.
Called by `taut ingest generic` and the tests.
"""
