"""Compiled decisions on where and when jobs run among sites: value of a start, simple rules, a rolling plan, a scorer.

Called by `scheduler_core.planning.sites` and the compiled environment in `pipelines.simulation.sites`.
"""
