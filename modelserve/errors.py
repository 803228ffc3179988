"""Errors of the `modelserve` package.

ServeError
├── BundleError     a bundle folder that is incomplete, tampered with or of another format
├── BadRequest      an invalid job or call: the field, and what was expected
├── ModelNotFound   no bundle for the trace and task type asked
├── MirrorError     a registry that could not be mirrored
├── Forbidden       a caller whose token lacks a scope, trace or cluster
├── NotKnown        an unknown answer, model or user
├── StoreError      a store that cannot be opened, read or written
├── BadSettings     invalid settings of the server: the variable, and what was expected
├── ListenError     the server cannot listen on the address, or no worker starts
└── ClientError     a call of a running service that failed
    ├── ServiceUnavailable  no service answered in time
    ├── Refused             the service refused the call: its status and problem
    └── WrongAnswer         a response of another shape, or of other jobs
"""

from collections.abc import Mapping


class ServeError(Exception):
    """Base of every error that this package raises."""


class BundleError(ServeError):
    """A bundle folder that is incomplete, tampered with or of another format."""


class BadRequest(ServeError, ValueError):
    """An invalid job or call."""


class ModelNotFound(ServeError):
    """No bundle exists for the trace and task type."""


class MirrorError(ServeError):
    """A registry that could not be mirrored."""


class Forbidden(ServeError):
    """A caller whose token lacks a scope, trace or cluster."""


class NotKnown(ServeError):
    """An unknown answer, model or user."""


class StoreError(ServeError):
    """A store that cannot be opened, read or written."""


class BadSettings(ServeError, ValueError):
    """Invalid settings of the server."""


class ListenError(ServeError):
    """The server cannot listen on the address, or no worker starts."""


class ClientError(ServeError):
    """A call of a running service that failed."""


class ServiceUnavailable(ClientError):
    """The service did not answer in time: unreachable, too slow, too busy or failing."""


class Refused(ClientError):
    """The service refused the call: `status` is HTTP's, `problem` the problem details (RFC 9457), {} without any."""

    def __init__(self, message: str, *, status: int, problem: Mapping[str, object]) -> None:
        super().__init__(message)
        self.status = status
        self.problem = problem


class WrongAnswer(ClientError):
    """A response of another shape, or of other jobs."""
