"""Decisions by energy, carbon and cost: power, hourly grid series, job release, allocation, routing.

Pure functions on arrays: no files, no clock. `pipelines.simulation.energy` reads the files.
"""
