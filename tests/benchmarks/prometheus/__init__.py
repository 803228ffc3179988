"""Benchmark of `taut usage prometheus`: jobs measured by a real Prometheus on this machine."""
