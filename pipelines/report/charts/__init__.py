"""Charts of the experiments: functions from a frame of rows to an Altair chart.

No statistics are computed here. Called by `pipelines.studies.shrinking.folder` and by notebooks.
"""
