"""Who calls, and how far the token reaches: scopes, and the traces and clusters it is bound to.

No HTTP and no hashing here; tokens are read in `modelserve.tokens`. Called by the service and its routes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from modelserve.errors import BadRequest, Forbidden

if TYPE_CHECKING:
    from modelserve.contract.requests import JobRow  # numpy, which the parent process does without


class Scope(StrEnum):
    """What a token may be used for."""

    PREDICT = "predict"
    FEEDBACK = "feedback"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A caller and its reach; `traces` and `clusters` are None where the token is bound to none in particular."""

    name: str
    scopes: frozenset[Scope]
    traces: frozenset[str] | None = None
    clusters: frozenset[str] | None = None

    def check_scope(self, scope: Scope) -> None:
        """Raise `Forbidden` unless the caller holds `scope`; `admin` holds every scope."""
        if scope not in self.scopes and Scope.ADMIN not in self.scopes:
            raise Forbidden(f"the token of {self.name[:40]} has no scope {scope}; expected one that has")

    def check_reach(self, trace: str, cluster: str | None, *, field: str) -> None:
        """Raise `Forbidden` unless the caller reaches `cluster` of `trace`; `field` says where they were named.

        A caller that is bound to clusters has to name one: a job without a cluster would be answered from any.
        """
        if self.traces is not None and trace not in self.traces:
            raise Forbidden(f"{field}.trace: {trace[:40]!r} is out of reach; expected one of {sorted(self.traces)}")
        if self.clusters is not None and cluster not in self.clusters:
            found = (
                "found none, and the token needs one named" if cluster is None else f"{cluster[:40]!r} is out of reach"
            )
            raise Forbidden(f"{field}.cluster: {found}; expected one of {sorted(self.clusters)}")

    def reaches(self, trace: str, cluster: str | None = None) -> bool:
        """Tell whether the caller may see what concerns `trace`, and `cluster` where one is named."""
        if self.traces is not None and trace not in self.traces:
            return False
        return self.clusters is None or cluster is None or cluster in self.clusters


ANYONE: Final = Caller(name="anyone", scopes=frozenset(Scope))
"""Who calls where tokens are switched off, which only a loopback address allows."""


def check_jobs(rows: "Sequence[JobRow]", trace: str | None, caller: Caller, *, field: str = "jobs") -> None:
    """Check that every job has a trace that the caller reaches; `field` names the jobs in the message.

    Raises
    ------
    BadRequest
        A job names no trace, and neither does anything else.
    Forbidden
        A job is out of reach.
    """
    bound = caller.traces is not None or caller.clusters is not None
    for i, row in enumerate(rows):
        of = row.trace or trace
        if of is None or bound:
            where = f"{field}.{i}" if field == "jobs" else field
            if of is None:
                raise BadRequest(f"{where}.trace: found none, expected one here, in the call or in the settings")
            caller.check_reach(of, row.cluster, field=where)
