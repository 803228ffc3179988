"""The agent beside slurmctld: asks the service about each submission, within a deadline and behind a circuit breaker.

`protocol.py` has the socket, `policy.py` the decision.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from modelserve.client import Advice, AsyncClient, Breaker, Retries, Timeouts
from modelserve.errors import ClientError
from pipelines.connect.slurm.policy import Answer, Mode, SlurmSettings, answer_to
from pipelines.connect.slurm.protocol import serve
from pipelines.connect.slurm.submission import BadRequestLine, Submission, read_submission
from pipelines.errors import BadUsage

__all__ = ["run_agent"]

FAILURES, REST_S = 3, 5.0
"""The breaker: after so many failures of the service in a row, it is not asked for so many seconds."""

TOKEN_VARIABLE = "TAUT_TOKEN"  # noqa: S105  # the name of a variable, not a token

Say = Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class Agent:
    """Answers requests of the plugin; every fault leaves the job as asked, and is written to the log by `say`."""

    settings: SlurmSettings
    client: AsyncClient
    say: Say
    breaker: Breaker = field(
        default_factory=lambda: Breaker(failures=FAILURES, cool_down_s=REST_S, clock=time.monotonic)
    )

    async def answer(self, request: bytes) -> Answer:
        """Return the answer to one request of the plugin; raise nothing but the cancellation at the deadline."""
        try:
            submission = read_submission(request)
        except BadRequestLine as error:
            self.say(f"kept: {error}")
            return Answer()
        answer = await self._about(submission)
        name = submission.texts.get("name", "")
        self.say(f"job {name[:60]!r}: {answer.admin_comment or 'no comment'}{answer.note and '; '}{answer.note}")
        return answer

    async def _about(self, submission: Submission) -> Answer:
        mode = self.settings.mode_of(submission)
        if mode is Mode.OFF:
            return Answer(note="opted out" if submission.opted_out else "mode off")
        if not self.breaker.admits():
            return Answer(note=f"no advice: the service failed and rests for {self.breaker.rest_s:.1f} s")
        try:
            advice = await self._advice(submission)
            answer = answer_to(submission, advice, mode)
        except asyncio.CancelledError:
            self.breaker.failed()
            self.say(f"kept: no advice within {self.settings.deadline_ms} ms")
            raise
        except Exception as error:  # any error: the submission must go on
            self.breaker.failed()
            return Answer(note=f"no advice: {type(error).__name__}: {error}")
        if advice.answer_id:
            self.breaker.succeeded()
        else:
            self.breaker.failed()
        return answer

    async def _advice(self, submission: Submission) -> Advice:
        settings = self.settings
        job = submission.job(cluster=settings.cluster, trace=settings.trace, least_mem_mib=settings.least_mem_mib)
        [advice] = await self.client.recommend([job])
        return advice


def client_of(settings: SlurmSettings) -> AsyncClient:
    """Return a client of the settings' services that tries each once within the deadline."""
    limit_s = settings.deadline_ms / 1000.0
    return AsyncClient(
        *settings.services,
        token=token_of(settings.token_file),
        ca_file=settings.ca_file,
        timeouts=Timeouts(connect_s=limit_s, answer_s=limit_s, total_s=limit_s),
        retries=Retries(tries=1),
    )


def token_of(file: Path | None) -> str | None:
    """Return the token in a file, else in the environment, else None."""
    if file is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise BadUsage(f"token_file {file}: {type(error).__name__}; expected a file that holds the token") from error


async def run_agent(settings: SlurmSettings, path: Path, *, say: Say) -> None:
    """Serve at a Unix socket until SIGTERM or SIGINT."""
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
        for each in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(each, serving.cancel)
        try:
            await serving
        except asyncio.CancelledError:
            say("stopped")


async def _readiness(client: AsyncClient) -> str:
    """Return what the service says of itself, so that a wrong address shows before the first submission."""
    try:
        ready = await client.ready()
    except ClientError as error:
        return f"warning: the service does not answer yet: {error}"
    return "the service is ready" if ready.status == "ready" else "warning: the service is not ready yet"
