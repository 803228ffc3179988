"""Benchmarks of placements by devices: one decision, one cluster filled up; `python -m tests.benchmarks.sharing`."""
