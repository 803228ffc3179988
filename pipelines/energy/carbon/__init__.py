"""The experiment on energy and carbon budgets: mean completion time at equal kWh, and carbon at equal completion time.

`jobs` draws what runs, `arms` names who plans, `runs` simulates, `curves` compares, `months` has real grids.
Planning and simulating are `scheduler_core.planning.carbon`'s. Called by `taut experiment carbon`.
"""
