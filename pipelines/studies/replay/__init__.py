"""Replays of recorded traces: every queue order against sizes from models, from history, and from an oracle.

`capacity` reads how large the cluster was, `sizes` what was known of each job when it came, `orders` names the rules;
`replay` runs them and `rows` measures. Simulating is `scheduler_core`'s, training `pipelines.models`'s.
Called by `taut study replay`.
"""
