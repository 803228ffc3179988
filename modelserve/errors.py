"""Errors of the `modelserve` package.

ServeError
├── BundleError     a bundle folder that is incomplete, tampered with or of another format
├── BadRequest      a job or a call that cannot be meant: the field, and what was expected
├── ModelNotFound   no bundle for the trace and task type asked
├── MirrorError     a registry that could not be mirrored
├── Forbidden       a caller whose token does not reach that far
├── NotKnown        an answer, a model or a user that is not there
├── StoreError      a store that cannot be opened, read or written
├── BadSettings     settings of the server that cannot be used: the variable, and what was expected
├── ListenError     an address that cannot be listened on, or workers that do not start
└── ClientError     a call of a running service that brought no answer
    ├── ServiceUnavailable  no service answered in time
    ├── Refused             the service said no: its status and what it said of the call
    └── WrongAnswer         an answer that is not one to what was asked
"""

from collections.abc import Mapping


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


class Forbidden(ServeError):
    """A caller whose token does not reach that far: the scope, trace or cluster that it lacks."""


class NotKnown(ServeError):
    """An answer, a model or a user that is not there."""


class StoreError(ServeError):
    """A store that cannot be opened, read or written."""


class BadSettings(ServeError, ValueError):
    """Settings of the server that cannot be used."""


class ListenError(ServeError):
    """An address that cannot be listened on, or workers that do not start."""


class ClientError(ServeError):
    """A call of a running service that brought no answer."""


class ServiceUnavailable(ClientError):
    """No service answered in time: away, too slow, too busy or failing."""


class Refused(ClientError):
    """The service said no: `status` is HTTP's, `problem` what the service said (RFC 9457), {} if it said nothing."""

    def __init__(self, message: str, *, status: int, problem: Mapping[str, object]) -> None:
        super().__init__(message)
        self.status = status
        self.problem = problem


class WrongAnswer(ClientError):
    """An answer that is not one to what was asked: not in its shape, or of other jobs."""
