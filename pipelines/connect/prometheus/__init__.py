"""Prometheus: read the use of jobs and machines over its HTTP API, hour by hour, into the lake.

`server` calls the server, and `dialects` describes the exporters. Other modules only read and write files of hours.
"""
