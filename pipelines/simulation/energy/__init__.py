"""Energy, carbon and cost of a schedule, computed from files of machine power, carbon intensity and price.

Decisions that depend on energy, such as when to release a job, are in `scheduler_core.planning`.
"""
