"""Metrics, time series and the event log of a schedule."""
