"""Call a running prediction service for commands: its client, its token, rounds of calls.

Imported inside the command functions of `pipelines.cli`.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from modelserve.client import Client, Timeouts
from modelserve.errors import ClientError
from pipelines.cli.options import Format, emit, say
from pipelines.errors import BadUsage, ConnectError, SourceError

TOKEN_VARIABLE: Final = "TAUT_TOKEN"  # noqa: S105  # the name of a variable, not a token
LIMIT_S: Final = 60.0

Row = dict[str, object]


def client_of(urls: Sequence[str], token_file: Path | None) -> Client:
    """Return a client of the service at `urls`; it waits longer than a scheduler's, because a person waits."""
    return Client(*urls, token=token_of(token_file), timeouts=Timeouts(answer_s=LIMIT_S, total_s=LIMIT_S))


def each_round(made: Callable[[], Sequence[Row]], form: Format, *, every_s: float, rounds: int | None) -> None:
    """Write the rows of one round after another; a failure is reported, and raised if the last of the rounds fails."""
    done = 0
    while rounds is None or done < rounds:
        if done:
            time.sleep(every_s)
        done += 1
        try:
            rows = made()
        except (SourceError, ConnectError, ClientError) as error:
            if done == rounds:
                raise
            say(f"warning: {error}; goes on trying")
        else:
            emit(rows, form, kinds=True)


def token_of(file: Path | None, variable: str = TOKEN_VARIABLE) -> str | None:
    """Return the token in a file, else in an environment variable; None without either."""
    if file is None:
        return os.environ.get(variable) or None
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadUsage(f"--token-file {file}: {reason}; expected a file that holds the token") from error
