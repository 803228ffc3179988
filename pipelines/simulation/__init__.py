"""Simulation of a cluster: engines, measures, energy accounts, settings and result files.

No experiment is designed here and no figure is compared with a publication. Called by `pipelines.cli` and
`pipelines.studies`.
"""
