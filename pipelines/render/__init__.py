"""Render flat rows as a table for reading, as JSON or as CSV."""

from pipelines.render.rows import printable, render

__all__ = ["printable", "render"]
