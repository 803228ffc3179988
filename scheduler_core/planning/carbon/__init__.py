"""Choice of GPU counts and frequencies under a carbon budget: jobs, allocator, and a round with placement.

The parts and the allocator's procedure follow a patent on carbon-intensity-based GPU scheduling ("the patent"); "ours"
marks additions. A round is a pure function of the jobs, the intensity and the period's budget. Simulations are in
`pipelines.studies.carbon`, which calls this package.
"""
