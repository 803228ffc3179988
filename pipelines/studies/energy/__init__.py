"""Measured watts, speeds and grids from files to models, and the experiments on energy, carbon and money.

`measured` reads the tables and `fits` judges the models; deciding and counting are `scheduler_core.planning`'s.
Called by `taut experiment` and `taut simulate`.
"""
