"""Charts: functions from a frame of rows to an Altair chart."""
