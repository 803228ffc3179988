"""Errors of the `features` package.

FeatureError
├── ContractError     a frame or a stored contract does not fit the contract
└── UnknownFeature    a feature or a feature set that no registry names
"""


class FeatureError(Exception):
    """Base of every error this package raises on purpose."""


class ContractError(FeatureError):
    """A frame or a stored contract does not fit: what was found, and what was expected."""


class UnknownFeature(FeatureError):
    """A feature or feature-set name that no registry holds."""
