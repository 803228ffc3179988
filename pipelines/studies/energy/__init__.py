"""Energy studies: savings of right-sizing and of delaying jobs, grid forecasts, fits of measured speed and power.

`measured` reads the measured tables; the models are in `scheduler_core.planning`. Called by `taut study`.
"""
