"""The experiment on costs with due dates: jobs with measured speeds, real prices, policies beside each other, bars.

Deciding and running are `scheduler_core.planning.cost`'s. Called by `taut experiment cost`.
"""
