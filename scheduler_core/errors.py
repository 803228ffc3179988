"""Errors of the `scheduler_core` package.

SchedulerError
├── BadInput              an argument outside its domain: what was found, what was expected
└── PredictorUnavailable  a predictor that cannot answer now; the scheduler goes on without it
"""


class SchedulerError(Exception):
    """Base of every error this package raises on purpose."""


class BadInput(SchedulerError, ValueError):
    """An argument outside its domain."""


class PredictorUnavailable(SchedulerError):
    """A predictor that cannot answer now: away, too slow, or answering nonsense."""
