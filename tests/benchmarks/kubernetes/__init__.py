"""Benchmarks of the Kubernetes interface."""
