r"""The exchange of the job_submit plugin and the agent: lines `key=value` over a Unix socket, bounded in size and time.

A request ends with an empty line, an answer with `end=1`; then the agent closes. Text is percent-encoded where it has
line ends. What is answered is in `policy.py`.
"""

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from pipelines.connect.slurm.policy import Answer
from pipelines.errors import BadUsage

MOST_REQUEST_BYTES: Final = 16_384
MOST_MESSAGE: Final = 300
END: Final = b"\n\n"

Handle = Callable[[bytes], Awaitable[Answer]]


def written(answer: Answer) -> bytes:
    r"""Return an answer as the plugin reads it.

    Examples
    --------
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
    """Remove the socket that an ended agent left."""
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
