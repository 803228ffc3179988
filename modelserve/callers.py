"""Callers and their bearer tokens: what a token permits, and the look-up of a token by its hash.

A token permits scopes (kinds of call), and traces and clusters, called its reach. Only the hash of a token is stored.
"""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Annotated, Final, Protocol

from pydantic import BaseModel, ConfigDict, Field

from modelserve.errors import BadRequest, Forbidden
from modelserve.scopes import Scope

__all__ = ["ANYONE", "Caller", "Token", "caller_of", "check_jobs"]


class Caller(BaseModel):
    """A caller, with the traces and clusters it may use (its reach); None means all."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(min_length=1, max_length=64)]
    scopes: frozenset[Scope]
    traces: frozenset[str] | None = None
    clusters: frozenset[str] | None = None

    def check_scope(self, scope: Scope) -> None:
        """Raise `Forbidden` unless the caller may make calls of `scope`; `admin` may make all."""
        if scope is Scope.FEEDBACK and self.believed:
            return
        if scope not in self.scopes and Scope.ADMIN not in self.scopes:
            raise Forbidden(f"the token of {self.name[:40]} lacks the scope {scope}")

    @property
    def believed(self) -> bool:
        """Whether all its feedback is believed; only by the scope itself, not by `admin`."""
        return Scope.ACCOUNTING in self.scopes

    def check_reach(self, trace: str, cluster: str | None, *, field: str) -> None:
        """Raise `Forbidden` unless the caller may use `cluster` of `trace`.

        `field` names the job in the message. A caller limited to clusters must name one, since a job without a cluster
        is predicted from the jobs of all clusters.
        """
        if self.traces is not None and trace not in self.traces:
            raise Forbidden(_out_of_reach(f"{field}.trace", trace, self.traces))
        if self.clusters is not None and cluster not in self.clusters:
            raise Forbidden(_out_of_reach(f"{field}.cluster", cluster, self.clusters))

    def reaches(self, trace: str, cluster: str | None = None) -> bool:
        """Return whether the caller may see `trace`, and `cluster` if given."""
        if self.traces is not None and trace not in self.traces:
            return False
        return self.clusters is None or cluster is None or cluster in self.clusters


def _out_of_reach(field: str, name: str | None, reach: frozenset[str]) -> str:
    found = "none" if name is None else repr(name[:40])
    return f"{field}: found {found}, expected one within the token's reach: {', '.join(sorted(reach)) or 'none at all'}"


ANYONE: Final = Caller(name="anyone", scopes=frozenset(Scope) - {Scope.ACCOUNTING})
"""The caller of every call if no tokens are set, which is allowed on loopback addresses only."""


class OfCluster(Protocol):
    """A job, or a whole call, with its trace and cluster; None if it names none."""

    @property
    def trace(self) -> str | None: ...
    @property
    def cluster(self) -> str | None: ...


def check_jobs(rows: Sequence[OfCluster], trace: str | None, caller: Caller, *, field: str = "jobs") -> None:
    """Check that every job has a trace and that the caller may use its trace and cluster.

    `trace` is the trace of jobs that name none; `field` names the jobs in error messages.
    """
    bound = caller.traces is not None or caller.clusters is not None
    for i, row in enumerate(rows):
        of = row.trace or trace
        if of is None or bound:
            where = f"{field}.{i}" if field == "jobs" else field
            if of is None:
                raise BadRequest(f"{where}.trace: found none, expected it in the job, the call or TAUT_SERVE_TRACE")
            caller.check_reach(of, row.cluster, field=where)


class Token(Caller):
    """One bearer token in the settings: the SHA-256 of its text (hex), and the caller to whom it belongs."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


BEARER: Final = b"bearer "
TOKEN_LIMIT_BYTES: Final = 512


def caller_of(authorization: bytes | None, tokens: Sequence[Token]) -> Caller | None:
    """Return the caller of an `Authorization` header, or None if its token is unknown or missing.

    Without any token in the settings, anyone may call. Hashes are compared in constant time and always with all tokens,
    so that timing reveals nothing.

    >>> caller_of(None, ()).name
    'anyone'
    """
    if not tokens:
        return ANYONE
    if authorization is None or authorization[: len(BEARER)].lower() != BEARER:
        return None
    presented = authorization[len(BEARER) :].strip()
    if not presented or len(presented) > TOKEN_LIMIT_BYTES:
        return None
    digest, caller = hashlib.sha256(presented).hexdigest(), None
    for token in tokens:
        if hmac.compare_digest(token.sha256, digest):
            caller = token
    return caller
