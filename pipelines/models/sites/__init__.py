"""Train and tune policies that route jobs among sites, on drawn weeks of recorded jobs.

Weeks are simulated in `pipelines.simulation.sites`.
"""
