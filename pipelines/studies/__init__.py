"""Studies: simulation experiments and analyses on real, rebuilt or synthetic jobs, run by `taut study NAME`.

Each subfolder answers one question, with confidence intervals. What all studies share is in `study`, the list of
studies in `registry`. Only `pipelines.cli` imports this package.
"""
