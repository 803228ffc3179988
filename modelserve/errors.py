"""Errors of the `modelserve` package: all are `ServeError`, those of its clients `ClientError`."""

from collections.abc import Mapping

__all__ = [
    "BadRequest", "BadSettings", "BundleError", "ClientError", "Forbidden", "ListenError", "MirrorError",
    "ModelNotFound", "NotKnown", "Refused", "ServeError", "ServiceUnavailable", "StoreError", "WrongAnswer",
]  # fmt: skip


class ServeError(Exception):
    """Base of every error that this package raises."""


class BundleError(ServeError):
    """A model's folder (bundle) is incomplete, was changed after writing, or is in another format."""


class BadRequest(ServeError, ValueError):
    """An invalid job or call."""


class ModelNotFound(ServeError):
    """No model exists for the requested trace and task type."""


class MirrorError(ServeError):
    """The model registry could not be copied to disk."""


class Forbidden(ServeError):
    """The caller's token does not allow the scope, trace or cluster of the call."""


class NotKnown(ServeError):
    """An unknown answer, model or user."""


class StoreError(ServeError):
    """The store cannot be opened, read or written."""


class BadSettings(ServeError, ValueError):
    """Invalid settings of the server."""


class ListenError(ServeError):
    """The server cannot listen on the address, or no worker starts."""


class ClientError(ServeError):
    """A client's call of a running service failed."""


class ServiceUnavailable(ClientError):
    """The service did not answer in time: unreachable, too slow, too busy or failing."""


class Refused(ClientError):
    """The service refused the call: `status` is the HTTP status, `problem` the problem details (RFC 9457) or {}."""

    def __init__(self, message: str, *, status: int, problem: Mapping[str, object]) -> None:
        super().__init__(message)
        self.status = status
        self.problem = problem


class WrongAnswer(ClientError):
    """A response has an unexpected shape, or is about other jobs than the requested ones."""
