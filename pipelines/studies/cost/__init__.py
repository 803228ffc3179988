"""The cost study: jobs with due dates at the lowest cost of tardiness and energy, against simple methods and optima.

Decisions are made in `scheduler_core.planning.cost`. Called by `taut study cost` and `taut study cost-gap`.
"""
