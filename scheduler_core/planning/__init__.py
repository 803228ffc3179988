"""Energy, carbon and money: models of speed and watts, hourly grids, accounting, and allocation under a budget.

Pure functions on arrays (numpy only): no files, no clock; tables and experiments are `pipelines.studies.energy`'s.
Called by `pipelines.studies.energy`, and by whoever schedules where power is told.
"""
