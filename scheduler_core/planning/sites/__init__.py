"""Decide at which site each waiting job starts now, or that it waits: rules, a rolling plan and a learnt scorer.

`policies` names the policies, `routing` decides for a list of jobs. Called by `pipelines` and `modelserve`.
"""
