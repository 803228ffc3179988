"""Replays of the recorded jobs of a trace under queue orders, with run-time estimates (sizes) from several sources."""
