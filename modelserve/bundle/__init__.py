"""Model folders: the file format, the trees, the predictor that reads them, and the copy from the registry.

No HTTP and no training here. Written by `pipelines.models`; read by `modelserve.loading` and the `taut` command.
"""
