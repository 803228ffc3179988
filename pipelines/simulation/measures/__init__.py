"""Metrics of a finished simulation: counts, use, waits, fairness, time series and fragmentation.

Nothing is simulated here. Called by `energy`, the rest of `pipelines.simulation`, and the studies.
"""
