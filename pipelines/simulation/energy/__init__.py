"""Energy, carbon and cost of a finished simulation, and the files these figures rest on.

No decision is made here: decisions on energy stand in `scheduler_core.planning`. Called by `pipelines.simulation`, the
report and the studies.
"""
