"""Render flat rows as a table for reading, as JSON or as CSV."""

from pipelines.render.rows import render

__all__ = ["render"]
