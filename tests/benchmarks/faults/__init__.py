"""Kills at seeded moments: of Dask workers within their units, of ingests within their commit to a bucket."""
