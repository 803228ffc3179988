"""Benchmarks of decisions on energy, carbon and money; `python -m tests.benchmarks.energy`."""
