"""The carbon study: elastic jobs under budgets of energy or carbon, against simpler schedulers, a bound and optima.

Decisions are made in `scheduler_core.planning.carbon`. Called by `taut study carbon` and `taut study carbon-gap`.
"""
