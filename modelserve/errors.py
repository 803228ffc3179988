"""Errors of the `modelserve` package.

ServeError
├── BundleError     a bundle folder that is incomplete, tampered with or of another format
├── BadRequest      a job or a call that cannot be meant: the field, and what was expected
├── ModelNotFound   no bundle for the trace and task type asked
└── MirrorError     a registry that could not be mirrored
"""


class ServeError(Exception):
    """Base of every error this package raises on purpose."""


class BundleError(ServeError):
    """A bundle folder that is incomplete, tampered with or of another format."""


class BadRequest(ServeError, ValueError):
    """A job or a call that cannot be meant."""


class ModelNotFound(ServeError):
    """No bundle for the trace and task type asked."""


class MirrorError(ServeError):
    """A registry that could not be mirrored."""
