"""Bundles (model folders): their format, the trees in them, predictions from them, and copying from the registry.

No HTTP and no training here. Written by `pipelines.models`; read by `modelserve.loading` and the `taut` command.
"""
