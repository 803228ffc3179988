"""A synthetic PAI trace in the published format, calibrated to published statistics.

No real row enters it, and nothing computed from it may pass for a measurement. Called by `pipelines.cli` and the demo.
"""
