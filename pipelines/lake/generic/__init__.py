"""Any job table into the lake: a mapping says which column is what, in which unit, and where the rows are.

A mapping becomes a declaration like those of `pipelines.lake.sources`, and goes the same way through staging and
quarantine. Called by `taut ingest generic` and the tests.
"""
