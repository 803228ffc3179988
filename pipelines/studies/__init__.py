"""Studies: one folder for each question, answered on real, rebuilt or synthetic jobs with intervals.

The frame is in `study`, the list of studies in `registry`. Only `pipelines.cli` imports this room: `taut study NAME`.
"""
