"""Energy, carbon and cost of a schedule, and the files of power, carbon intensity and price they are computed from.

Decisions on energy are in `scheduler_core.planning`. Called by `pipelines.simulation`, the report and the studies.
"""
