"""Benchmarks of the prediction service: `make bench-serve` and `make soak`."""
