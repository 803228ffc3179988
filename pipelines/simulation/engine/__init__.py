"""Event-driven simulation of a cluster. No metric is computed here."""
