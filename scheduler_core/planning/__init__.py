"""Decide by energy, carbon and cost: models of speed and power, hourly grid series, release times, allocation.

Pure functions on arrays: no files, no clock. Files and accounts are in `pipelines.simulation.energy`. Called by
`pipelines.simulation` and `pipelines.studies`.
"""
