"""GPU counts and frequencies under a carbon budget: intensity getter, cluster monitor, allocator, placer.

One round is a pure function of the running jobs, the intensity and the period's budget; nothing here keeps time.
Called by `pipelines.studies.energy`; forecasts and accounting are next door in `scheduler_core.planning`.
"""
