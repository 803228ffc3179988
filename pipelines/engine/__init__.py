"""Engines that run independent units of work: in this process, in several processes, or on a Dask cluster.

A unit gets the same answer on every engine; only the caller commits results.
"""
