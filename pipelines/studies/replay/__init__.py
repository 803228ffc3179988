"""Replays of the recorded jobs of a trace under queue orders, with run-time estimates from several sources.

Throughout this folder, a size is an estimate of a job's run time that is known at its submission: predicted by models,
taken from history, or exact (the oracle). `capacity` estimates how large the cluster was, `sizes` makes the sizes,
`replay` lists the queue orders and simulates, and `rows` computes metrics.
Called by `taut study replay`.
"""
