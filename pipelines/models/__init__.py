"""Train, judge, gate and track models of run time and use.

Training and judging are pure: frames in, boosters and tables out, randomness only by seed. `model` writes the bundle,
`tracking` writes MLflow, `retrain` joins them. Called by `pipelines.cli` and `pipelines.studies`.
"""
