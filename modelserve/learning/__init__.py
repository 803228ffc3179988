"""Learning from finished jobs: feedback, modes, memory floors and brakes, drift, and erasure of users.

Models are trained in `pipelines.models`, and SQL is in `modelserve.store`.
"""
