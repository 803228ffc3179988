"""Right-sizing: what each recurring group of jobs requests, needs and could give back.

No request is changed here. Called by `taut rightsize`.
"""
