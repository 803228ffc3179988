"""Errors of the `scheduler_core` package.

SchedulerError
├── BadInput              an argument outside its domain
└── PredictorUnavailable  a predictor that fails; the scheduler continues without it
"""

__all__ = ["BadInput", "PredictorUnavailable", "SchedulerError"]


class SchedulerError(Exception):
    """Base of every error this package raises on purpose."""


class BadInput(SchedulerError, ValueError):
    """An argument outside its domain."""


class PredictorUnavailable(SchedulerError):
    """A predictor that fails: it is unreachable, too slow, or returns invalid predictions."""
