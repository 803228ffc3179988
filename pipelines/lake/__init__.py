"""The lake: read published or own files into canonical tables, quarantine bad rows, and read the tables back.

No model is trained here. Called by `pipelines.cli`, `pipelines.models`, `pipelines.statistics` and the report.
"""
