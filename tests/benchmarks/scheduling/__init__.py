"""Benchmarks of the scheduler core: engines, rounds and their growth; `python -m tests.benchmarks.scheduling`."""
