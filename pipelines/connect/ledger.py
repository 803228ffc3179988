"""The state of running jobs between rounds, kept in a file so that a restart loses nothing.

Jobs that no longer run are removed, so the file does not grow.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from modelserve.client import Client
from modelserve.contract.reservations import Reserved, RunningJob, Statistics
from pipelines.connect.files import replace_text
from pipelines.errors import ConnectError

__all__ = ["Account", "Ledger"]

MOST_BYTES: Final = 256 * 2**20
"""Maximum size of the file of a ledger; about half a million jobs."""


class Account(BaseModel):
    """One running job: statistics of its samples, and its newest counters by name, read at a time in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    statistics: Statistics | None = None
    counted_at_s: float | None = None
    counters: dict[str, float] = {}


class Ledger(BaseModel):
    """The accounts of the running jobs by id, and per machine the Unix time until which it takes no new job."""

    model_config = ConfigDict(extra="forbid")

    accounts: dict[str, Account] = {}
    closed_until: dict[str, float] = {}

    def known(self, job_id: str) -> Account:
        """Return the account of a job; an empty one if there is none."""
        return self.accounts.get(job_id, Account())

    def reserved(
        self, client: Client, jobs: Iterable[RunningJob], counted: Mapping[str, Account] | None = None
    ) -> list[Reserved]:
        """Ask the service what to reserve for all running jobs, and keep the statistics that it returns.

        `counted` holds the new counters of jobs by id. Jobs that are neither running nor counted are removed.
        """
        asked, fresh = list(jobs), dict(counted or {})
        answers = client.reservations(asked) if asked else []
        for each in answers:
            kept = fresh.get(each.job_id, Account())
            fresh[each.job_id] = kept.model_copy(update={"statistics": each.statistics})
        self.accounts = fresh
        return answers

    @classmethod
    def read(cls, path: Path) -> "Ledger":
        """Return the ledger in a file; an empty one if there is no file."""
        try:
            with path.open("rb") as stream:
                content = stream.read(MOST_BYTES + 1)
            if len(content) > MOST_BYTES:
                raise ConnectError(f"ledger {path}: found more than {MOST_BYTES // 2**20} MiB; remove it to begin anew")
            return cls.model_validate_json(content)
        except FileNotFoundError:
            return cls()
        except (OSError, ValidationError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no ledger"
            raise ConnectError(f"ledger {path}: {why}; remove it to begin anew") from error

    def write(self, path: Path) -> None:
        """Replace the file of the ledger in one step."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_text(path, self.model_dump_json(exclude_defaults=True))
        except OSError as error:
            raise ConnectError(f"ledger {path}: {error.strerror}; expected a file that may be written") from error
