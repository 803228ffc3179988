"""Offline side: published traces to a lake, a lake to models and reports; and the `taut` command.

Effects (files, DuckDB, MLflow, HTTP downloads) live here, each behind one module.
Only `pipelines.cli` may import everything; it is where the parts are put together.
"""
