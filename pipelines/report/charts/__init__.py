"""Charts of the experiments: functions from a frame of rows to an Altair chart.

No figure is computed here that is not in the rows. Called by `pipelines.studies.shrinking.folder` and by notebooks.
"""
