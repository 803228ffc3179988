"""Download of published traces: resumed, verified by SHA-256 and unpacked.

Nothing is parsed here. Called by `pipelines.cli`.
"""
