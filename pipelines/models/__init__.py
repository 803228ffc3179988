"""Models and baselines from canonical jobs, and what they are worth.

Pure: frames in, boosters and tables out; no disk, no MLflow, no clock, and randomness only by seed.
Called by `pipelines.cli`, `pipelines.cli.demo_tables`, `pipelines.models.tracking` and `pipelines.models.gate`.
"""
