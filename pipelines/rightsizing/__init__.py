"""What each recurring group of jobs requests, uses and could give back.

No request is changed here. Called by `pipelines.cli` and the report.
"""
