"""Choose GPU counts and frequencies under a carbon budget: intensity getter, cluster monitor, allocator, placer.

A round is a pure function of the jobs, the intensity and the period's budget; no clock is read. Forecasts are in
`scheduler_core.planning`, simulations in `pipelines.studies.carbon`, which calls this package.
"""
