"""Prometheus: read the use of jobs and machines over its HTTP API, hour by hour, into the lake.

The server is in `server`, the exporters in `dialects`; the other modules are pure but for the files of the hours.
"""
