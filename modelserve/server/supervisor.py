"""The parent process: bind the address, keep the workers and the sync process running, and stop them.

It imports neither uvicorn nor a model and reads no request, so no request can crash it.
"""

import asyncio
import contextlib
import json
import logging
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from modelserve.errors import ListenError
from modelserve.server.environment import (
    METRICS_FOLDER,
    STORE_INODE,
    address_of,
    allow_open_files,
    check_certificate,
    child_environment,
    forget_live,
    listening_socket,
    metrics_folder,
)
from modelserve.settings import ServeSettings

WORKER: Final = (sys.executable, "-P", "-m", "modelserve.server.worker")
MIRROR: Final = (sys.executable, "-P", "-c", "from modelserve.server.environment import mirror; mirror()")
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 30.0
STEADY_S: Final = 10.0
"""Run time in seconds after which a dead process restarts after the first pause again."""
HUNG_S: Final = 60.0
"""Seconds of silence after which a process that has sent a sign of life before counts as hanging."""
END_SPARE_S: Final = 5.0
"""Seconds for a worker to close its resources after draining and its last calls."""
MESSAGE_LIMIT_BYTES: Final = 2**20

Say = Callable[[str], None]
log = logging.getLogger("taut.server")


def serve(settings: ServeSettings, *, say: Say = log.info, worker: Sequence[str] = WORKER) -> None:
    """Serve until SIGTERM or SIGINT, and return after running calls are answered.

    `say` reports messages for the user, such as the address; `worker` is the command of one worker process.

    Raises
    ------
    BadSettings
        The host is not an address, or the TLS certificate and key cannot be used.
    ListenError
        The server cannot listen on the address, the system allows too few open files, or no worker starts.
    """
    check_certificate(settings)
    connections = allow_open_files(settings.connections_limit)
    if connections < settings.connections_limit:
        say(
            f"the limit of open files (ulimit -n) allows each worker {connections} connections, not "
            f"{settings.connections_limit}"
        )
    with listening_socket(settings.host, settings.port) as listening:
        if not settings.tokens:
            say("tokens are OFF: anyone who reaches this address has full access")
        with metrics_folder(settings.workers) as metrics:
            asyncio.run(Supervisor(settings, listening, metrics=metrics, say=say, worker=worker).run())


@dataclass(slots=True, eq=False, kw_only=True)
class Child:
    """A process that is kept running: its name in the log, its command, and the file descriptors that it inherits."""

    name: str
    command: Sequence[str]
    files: tuple[int, ...] = ()
    process: asyncio.subprocess.Process | None = None

    @property
    def title(self) -> str:
        """The name and the id of the process, for log lines."""
        return f"{self.name} (process {self.process.pid if self.process else None})"

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal; do nothing if it has ended."""
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)


class Supervisor:
    """The child processes of one server.

    The first SIGTERM or SIGINT drains the workers, the second stops them at once, the third kills them.
    """

    def __init__(
        self,
        settings: ServeSettings,
        listening: socket.socket,
        *,
        metrics: Mapping[str, str],
        say: Say,
        worker: Sequence[str],
    ) -> None:
        self._environment = child_environment(settings, metrics)
        self._settings, self._listening, self._metrics, self._say = settings, listening, metrics, say
        descriptor = listening.fileno()
        self._workers = [
            Child(name=f"worker {slot}", command=(*worker, str(slot), str(descriptor)), files=(descriptor,))
            for slot in range(settings.workers)
        ]
        mirrors = settings.tracking_uri is not None
        self._sync = [Child(name="sync", command=MIRROR)] if mirrors else []
        self._ending = asyncio.Event()
        self._signals = 0
        self._serving = False

    async def run(self) -> None:
        """Start the processes, restart those that die, and return when a signal has stopped all of them."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._signalled)
        workers, sync = ([asyncio.create_task(self._keep(each)) for each in of] for of in (self._workers, self._sync))
        ending = asyncio.create_task(self._ending.wait())
        try:
            await asyncio.wait([ending, *workers, *sync], return_when=asyncio.FIRST_COMPLETED)
            # Close the parent's copy of the socket too, so that connections which no worker accepts are refused.
            self._listening.close()
            self._ending.set()
            self._signal_all(signal.SIGTERM)
            await self._ended(workers, self._settings.drain_s + self._settings.stop_limit_s + END_SPARE_S)
            await self._ended(sync, END_SPARE_S)
        finally:
            self._signal_all(signal.SIGKILL)
        if not self._serving and not self._signals:
            raise ListenError("no worker started; see its messages above")

    def _signalled(self) -> None:
        self._signals += 1
        if self._signals == 1:
            self._say(f"ending: draining for {self._settings.drain_s:g} s; a second signal stops at once")
            self._ending.set()
        else:
            self._signal_all(signal.SIGUSR1 if self._signals == 2 else signal.SIGKILL)

    def _signal_all(self, number: signal.Signals) -> None:
        for child in (*self._workers, *self._sync):
            child.signal(number)

    async def _ended(self, tasks: Sequence[asyncio.Task[None]], limit_s: float) -> None:
        """Wait until processes have ended, and kill all of them at the limit."""
        if tasks and (await asyncio.wait(tasks, timeout=limit_s))[1]:
            self._signal_all(signal.SIGKILL)
        await asyncio.gather(*tasks)

    async def _keep(self, child: Child) -> None:
        """Run a process, and run it again when it ends, until the server ends."""
        clock, pause_s = asyncio.get_running_loop().time, 0.0
        while not self._ending.is_set():
            began_s = clock()
            code = await self._run(child)
            if child in self._workers:
                forget_live(self._metrics.get(METRICS_FOLDER), str(self._workers.index(child)))
                if not self._serving:
                    self._ending.set()
            if self._ending.is_set():
                return
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            log.error("%s ended with %s; starting another", child.title, how)
            pause_s = pause_after(pause_s, ran_s=clock() - began_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), pause_s)

    async def _run(self, child: Child) -> int:
        """Start a process, read its messages until it closes its pipe, and return its exit code.

        A process that closed its pipe but still runs is killed: it would not notice the supervisor's end.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            # A child in a separate process group gets no Ctrl+C from the terminal: the parent ends it.
            child.process = process = await asyncio.create_subprocess_exec(
                *child.command,
                stdin=theirs.fileno(),
                env=self._environment,
                pass_fds=child.files,
                process_group=0,
            )
        if self._ending.is_set():
            child.signal(signal.SIGTERM)
        reader, writer = await asyncio.open_connection(sock=ours, limit=MESSAGE_LIMIT_BYTES)
        try:
            await self._hear(child, reader)
        except (OSError, ValueError):  # the pipe broke
            pass
        finally:
            writer.close()
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(process.wait(), 1.0)
        child.signal(signal.SIGKILL)
        return await process.wait()

    async def _hear(self, child: Child, reader: asyncio.StreamReader) -> None:
        silence_s: float | None = None
        while True:
            try:
                line = await asyncio.wait_for(reader.readline(), silence_s)
            except TimeoutError:
                if self._ending.is_set():  # a worker that waits for its last calls sends nothing
                    silence_s = None
                    continue
                log.error("%s hangs; killing it", child.title)
                return
            if not line:
                return
            silence_s = HUNG_S
            if line != b"\n" and child in self._workers:
                self._note_ready(json.loads(line))

    def _note_ready(self, facts: Mapping[str, object]) -> None:
        if facts.get("store_inode"):
            # A worker that starts later must not create another store, or open a store that replaced the first.
            self._environment.setdefault(STORE_INODE, str(facts["store_inode"]))
        if not self._serving:
            self._serving = True
            secure = self._settings.tls_certificate is not None
            self._say(f"listening on {address_of(self._listening, tls=secure)}")  # from now on calls are answered
            self._say(summary(facts))


def pause_after(pause_s: float, *, ran_s: float) -> float:
    """Return the seconds before a restart: twice the last pause, or the first pause if the process ran long."""
    return FIRST_PAUSE_S if ran_s > STEADY_S else min(max(2 * pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)


def summary(facts: Mapping[str, object]) -> str:
    """Return a text that names the loaded models and the failures in a worker's ready message."""
    models, failures = facts.get("models"), facts.get("failures")
    text = f"serving {', '.join(models)}" if isinstance(models, list) and models else "serving no model yet"
    if isinstance(failures, dict):
        text += "".join(f"\nleft out {name}: {problem}" for name, problem in failures.items())
    return text
