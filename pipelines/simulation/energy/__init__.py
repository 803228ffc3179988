"""Energy, carbon and cost of a simulation."""
