"""Render flat rows as a table for reading, as JSON or as CSV. Called by `pipelines.cli`, which chooses the rows."""

from pipelines.render.rows import render

__all__ = ["render"]
