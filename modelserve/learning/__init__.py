"""Learning from finished jobs: feedback, modes, memory floors and brakes, and drift.

Models are trained in `pipelines.models`, and SQL is in `modelserve.store`.
"""
