"""The paper's experiments on drawn jobs: grids of loads, mixes and policies, claims beside what was found, net of harm.

The simulator is `scheduler_core`, paired runs are `pipelines.simulation.paired_runs`, pictures
`pipelines.report.charts`. Called by `taut experiment`.
"""
