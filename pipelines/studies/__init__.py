"""Studies: one folder a question, each answered on real, rebuilt or synthetic jobs with intervals.

The product does not import this room. Called by `taut study NAME`.
"""
