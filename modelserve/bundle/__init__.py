"""The model folder: its format, its trees, the predictor that reads it, and the registry it comes from.

No HTTP and no learning here. Written by `pipelines.models`; read by `modelserve.loading` and the `taut` command.
"""
