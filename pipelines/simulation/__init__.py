"""Simulation of a cluster: engines, measures, energy accounts, settings and result files.

The files here read `energy`, `measures` and `engine`, in that order and never upwards; studies are elsewhere.
Called by `pipelines.cli`, the report and `pipelines.studies`.
"""
