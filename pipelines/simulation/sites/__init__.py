"""Jobs with due dates on several sites in different grid zones: the environment, its accounts, and bounds.

Decisions are in `scheduler_core.planning.sites`.
"""
