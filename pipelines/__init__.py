"""Offline part: load published traces into a lake, train models, write reports; and the `taut` command.

Side effects (files, DuckDB, MLflow, HTTP downloads) occur only here, each in one module.
Only `pipelines.cli` may import everything; it connects the parts.
"""
