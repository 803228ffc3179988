"""Charts: functions from a frame of rows to an Altair chart.

No statistics are computed here.
"""
