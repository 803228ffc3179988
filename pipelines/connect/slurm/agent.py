"""The agent beside slurmctld asks the service about each submission within a deadline, and stops asking if it fails.

`policy.py` decides. Plugin and agent exchange lines `key=value` over a Unix socket, bounded in size and time. A request
ends with an empty line, an answer with `end=1`. Text is percent-encoded where it has line ends.
"""

import asyncio
import contextlib
import os
import signal
import socket
import stat
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

from modelserve.client import Advice, AsyncClient, Retries, Timeouts
from modelserve.errors import ClientError
from pipelines.connect.files import replace_text
from pipelines.connect.slurm.policy import Answer, Mode, SlurmSettings, answer_to
from pipelines.connect.slurm.submission import BadRequestLine, Submission, read_submission
from pipelines.errors import BadUsage

__all__ = ["run_agent"]

TOKEN_VARIABLE = "TAUT_TOKEN"  # noqa: S105  # the name of a variable, not a token

Say = Callable[[str], None]
MOST_REQUEST_BYTES: Final = 16_384
MOST_MESSAGE: Final = 300
END: Final = b"\n\n"
FAILURES: Final = 3
"""Failures in a row after which submissions no longer wait for the service."""
RETRY_S: Final = 1.0
"""Seconds between two attempts to reach a service that failed."""
METRICS_EVERY_S: Final = 15.0

BUCKETS_S: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)

Handle = Callable[[bytes], Awaitable[Answer]]
Reason = Literal["late", "unavailable", "resting", "unreadable", "script"]
"""Why a submission got no advice.

The service missed the deadline, failed, or was not asked after three failures; the agent could not read the request; or
the script got no answer in time, which its next request reports.
"""


@dataclass(slots=True, kw_only=True)
class Counts:
    """Outcomes of submissions since the agent started, as Prometheus's text; mode `off` does not count.

    node_exporter's textfile collector reads it from a file, so the agent needs no port.
    """

    answered: int = 0
    lost: Counter[Reason] = field(default_factory=Counter)
    took_s: float = 0.0
    _within: Counter[float] = field(default_factory=Counter)
    _timed: int = 0

    def took(self, seconds: float) -> None:
        """Count the seconds of one call of the service, also of a failed call."""
        self._timed += 1
        self.took_s += seconds
        self._within.update(bucket for bucket in BUCKETS_S if seconds <= bucket)

    def page(self) -> str:
        """Return the counts in Prometheus's text format; every reason has a series from the start."""
        buckets = [(f"{each:g}", self._within[each]) for each in BUCKETS_S] + [("+Inf", self._timed)]
        families: dict[str, list[tuple[str, float]]] = {
            "taut_agent_asked_total counter": [("", self.answered + self.lost.total())],
            "taut_agent_answered_total counter": [("", self.answered)],
            "taut_agent_lost_total counter": [(f'{{reason="{each}"}}', self.lost[each]) for each in get_args(Reason)],
            "taut_agent_call_seconds histogram": [
                *((f'_bucket{{le="{bound}"}}', count) for bound, count in buckets),
                ("_sum", self.took_s),
                ("_count", self._timed),
            ],
        }
        lines = []
        for family, samples in families.items():
            lines += [f"# TYPE {family}", *(f"{family.split()[0]}{end} {value}" for end, value in samples)]
        return "\n".join([*lines, ""])


@dataclass(slots=True, kw_only=True)
class Agent:
    """Answers requests of the plugin; every fault leaves the job as asked, and is written to the log by `say`.

    After `FAILURES` in a row no submission waits for the service: the agent itself repeats the newest question until it
    is answered within the deadline.
    """

    settings: SlurmSettings
    client: AsyncClient
    say: Say
    counts: Counts = field(default_factory=Counts)
    _failures: int = 0
    _trial: Submission | None = None
    _trying: asyncio.Task[None] | None = None

    async def answer(self, request: bytes) -> Answer:
        """Return the answer to one request of the plugin; the only exception is the cancellation at the deadline."""
        try:
            submission = read_submission(request)
        except BadRequestLine as error:
            self.counts.lost["unreadable"] += 1
            self.say(f"kept: {error}")
            return Answer()
        self.counts.lost["script"] += submission.numbers.get("lost", 0)
        answer = await self._about(submission)
        name = submission.texts.get("name", "")
        self.say(f"job {name[:60]!r}: {answer.admin_comment or 'no comment'}{answer.note and '; '}{answer.note}")
        return answer

    async def _about(self, submission: Submission) -> Answer:
        mode = self.settings.mode_of(submission)
        if mode is Mode.OFF:
            return Answer(note="opted out" if submission.opted_out else "mode off")
        if self._trying is not None:
            self._trial = submission
            self.counts.lost["resting"] += 1
            return Answer(note=f"no advice: the service failed and is tried again each {RETRY_S:g} s")
        began_s = time.monotonic()
        try:
            advice = await self._advice(submission)
            answer = answer_to(submission, advice, mode)
        except asyncio.CancelledError:
            self._failed(submission, "late")
            self.say(f"kept: no advice within {self.settings.deadline_ms} ms")
            raise
        except Exception as error:  # any error: the submission must go on
            self._failed(submission, "unavailable")
            return Answer(note=f"no advice: {type(error).__name__}: {error}")
        finally:
            self.counts.took(time.monotonic() - began_s)
        if advice.answer_id:
            self._failures = 0
            self.counts.answered += 1
        else:
            self._failed(submission, "unavailable")
        return answer

    def _failed(self, submission: Submission, reason: Reason) -> None:
        self.counts.lost[reason] += 1
        self._failures += 1
        if self._failures >= FAILURES and self._trying is None:
            self._trial = submission
            self._trying = asyncio.create_task(self._try_again())

    async def _try_again(self) -> None:
        answered = False
        while not answered and self._trial is not None:
            await asyncio.sleep(RETRY_S)
            with contextlib.suppress(Exception):
                answered = bool((await self._advice(self._trial)).answer_id)
        self._failures, self._trying = 0, None
        self.say("the service answers again")

    async def _advice(self, submission: Submission) -> Advice:
        settings = self.settings
        job = submission.job(cluster=settings.cluster, trace=settings.trace, least_mem_mib=settings.least_mem_mib)
        [advice] = await self.client.recommend([job])
        return advice


def client_of(settings: SlurmSettings) -> AsyncClient:
    """Return a client of the settings' services that tries each service once within the deadline.

    `serve` ends a request at the same deadline, counted from its arrival.
    """
    limit_s = settings.deadline_ms / 1000.0
    return AsyncClient(
        *settings.services,
        token=token_of(settings.token_file),
        ca_file=settings.ca_file,
        timeouts=Timeouts(connect_s=limit_s, answer_s=limit_s, total_s=limit_s),
        retries=Retries(tries=1),
    )


def token_of(file: Path | None) -> str | None:
    """Return the token in the file; without a file, the one in the environment; None without both."""
    if file is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise BadUsage(f"token_file {file}: {type(error).__name__}; expected a file that holds the token") from error


async def run_agent(settings: SlurmSettings, path: Path, *, say: Say) -> None:
    """Serve at a Unix socket until SIGTERM or SIGINT; metrics are beside it (`slurm.prom` for `slurm.sock`)."""
    async with client_of(settings) as client:
        agent = Agent(settings=settings, client=client, say=say)
        say(await _readiness(client))
        serving = asyncio.create_task(
            serve(
                path,
                agent.answer,
                deadline_s=settings.deadline_ms / 1000.0,
                ready=lambda: say(f"listening on {path}"),
            )
        )
        measuring = asyncio.create_task(_write_metrics(path.with_suffix(".prom"), agent.counts, say))
        for each in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(each, serving.cancel)
        try:
            await serving
        except asyncio.CancelledError:
            say("stopped")
        finally:
            measuring.cancel()


async def _write_metrics(path: Path, counts: Counts, say: Say) -> None:
    """Write the metrics periodically; if the file cannot be written, the agent continues."""
    failing = False
    while True:
        try:
            replace_text(path, counts.page(), public=True)
            failing = False
        except OSError as error:
            if not failing:
                say(f"warning: no metrics in {path}: {error.strerror}")
            failing = True
        await asyncio.sleep(METRICS_EVERY_S)


async def _readiness(client: AsyncClient) -> str:
    """Return whether the service is ready, so that a wrong address shows before the first submission."""
    try:
        ready = await client.ready()
    except ClientError as error:
        return f"warning: the service does not answer yet: {error}"
    return "the service is ready" if ready.status == "ready" else "warning: the service is not ready yet"


def written(answer: Answer) -> bytes:
    r"""Return an answer in the form that the plugin reads.

    >>> written(Answer(amounts={"cpus_per_task": 2}, admin_comment="taut a-1", note="not sent"))
    b'cpus_per_task=2\nadmin_comment=taut a-1\nend=1\n'
    """
    lines = [f"{name}={amount}" for name, amount in answer.amounts.items()]
    lines += [
        f"{name}={_one_line(text)}"
        for name, text in (("admin_comment", answer.admin_comment), ("message", answer.message))
        if text
    ]
    return ("\n".join([*lines, "end=1"]) + "\n").encode()


def _one_line(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text)[:MOST_MESSAGE]


async def serve(path: Path, handle: Handle, *, deadline_s: float, ready: Callable[[], None]) -> None:
    """Answer requests at a Unix socket until cancelled; a request without an answer in time gets an empty one."""
    _clear(path)

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = Answer()
        with contextlib.suppress(TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(deadline_s):
                answer = await handle(await reader.readuntil(END))
        with contextlib.suppress(OSError):
            writer.write(written(answer))
            await writer.drain()
        writer.close()

    try:
        server = await asyncio.start_unix_server(one, path, limit=MOST_REQUEST_BYTES, backlog=256)
    except OSError as error:
        raise BadUsage(f"--socket {path}: {error.strerror}; expected a folder that this user may write to") from error
    path.chmod(stat.S_IRUSR | stat.S_IWUSR)
    try:
        async with server:
            ready()
            await server.serve_forever()
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def _clear(path: Path) -> None:
    """Remove the socket of an agent that has ended."""
    if len(os.fsencode(path)) > 100:
        raise BadUsage(f"--socket {path}: longer than a Unix socket's name may be; expected at most 100 bytes")
    if not path.exists():
        return
    if not stat.S_ISSOCK(path.stat().st_mode):
        raise BadUsage(f"--socket {path}: found a file that is no socket; expected a new path")
    with socket.socket(socket.AF_UNIX) as trial:
        trial.settimeout(1.0)
        try:
            trial.connect(os.fspath(path))
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise BadUsage(f"--socket {path}: another agent listens there; stop it first")
