"""Studies of energy: savings of right-sizing and of waiting, grid forecasts, and fits of measured speed and power.

`measured` reads the tables; models are in `scheduler_core.planning`. Called by `taut study`.
"""
