"""Learning from finished jobs: feedback, modes, memory floors and brakes, drift, and erasure of users.

Nothing is trained here, and SQL is in `modelserve.store`. Called by the service and, for what was learnt, by
`modelserve.calls`.
"""
