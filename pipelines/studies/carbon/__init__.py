"""Carbon study: elastic jobs under energy or carbon budgets, compared with simpler schedulers, a bound and optima.

Decisions are made in `scheduler_core.planning.carbon`.
"""
