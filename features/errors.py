"""Errors of the `features` package.

FeatureError
├── ContractError     a frame or a stored contract does not fit the contract
└── UnknownFeature    an unknown name of a feature or feature set
"""

__all__ = ["FeatureError"]


class FeatureError(Exception):
    """Base of every error this package raises on purpose."""


class ContractError(FeatureError):
    """A frame or a stored contract does not fit; the message names what was found and what was expected."""


class UnknownFeature(FeatureError):
    """An unknown name of a feature or feature set."""
