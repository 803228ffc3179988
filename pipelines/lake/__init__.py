"""The lake: sources are declared, ingested and quarantined here, and read back through one owner of DuckDB.

No model is trained here. Called by `pipelines.cli`, `pipelines.models`, `pipelines.statistics` and the report.
"""
