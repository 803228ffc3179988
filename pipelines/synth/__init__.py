"""A synthetic PAI trace in the published format, calibrated to published statistics.

It contains no row of the real trace; results computed from it are not measurements.
"""
