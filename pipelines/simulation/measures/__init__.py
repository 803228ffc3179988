"""Metrics of a finished simulation: counts, use, waits, fairness, time series and fragmentation.

Nothing is simulated here.
"""
