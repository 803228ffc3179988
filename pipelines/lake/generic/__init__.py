"""Ingest of a user's own job tables, described by a mapping file: files or query, columns and units."""
