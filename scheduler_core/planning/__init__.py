"""Decisions by energy, carbon and cost: models of GPU speed and power, hourly grid series, job release, allocation.

Pure functions on arrays: no files, no clock. `pipelines.simulation.energy` reads the files. Called by
`pipelines.simulation` and `pipelines.studies`.
"""
