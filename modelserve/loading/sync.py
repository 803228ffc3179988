"""Copy models from the registry to the folder of bundles at regular intervals, in one process next to the workers.

Each round writes its result to `<bundles>/.sync.json`. `modelserve.server.environment` runs it as a process.
"""

import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from modelserve.bundle.card import canonical_json
from modelserve.bundle.champions import model_names, read_pointer
from modelserve.bundle.registry import Mirrored, Verified, mirror
from modelserve.contract.models import MirrorState
from modelserve.errors import BundleError, MirrorError
from modelserve.settings import ServeSettings

__all__ = ["main", "read_mirror_state"]

STATE: Final = ".sync.json"
STATE_LIMIT_BYTES: Final = 65_536

END_WITHIN_S: Final = 2
"""Seconds after SIGTERM or SIGINT for the running round to end; after them the process ends anyway."""

KEPT_VERSIONS: Final = 5
"""Number of newest former champions that are kept per model, so that their responses can be explained."""

WAIT_MOST_S: Final = 300.0
"""Maximum wait between rounds while the registry is unavailable; the wait doubles with each failure up to this."""

LEFTOVER_S: Final = 86_400.0
"""Age in seconds at which the temporary folder of a download counts as left by a process that has ended."""

JITTER_FRAC: Final = 0.2
"""Maximum share by which a wait is shortened at random, so that sync processes do not query all at the same time."""

REGISTRY: Final = "registry"

logger = logging.getLogger(__name__)


class SyncState(BaseModel):
    """The last sync round: time of the last attempt, and of the last success (`at`), in Unix seconds; 0 for never.

    `error` is why the last round failed, `failing` the errors of single models.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    at: float = 0.0
    attempted_at: float = 0.0
    error: str | None = None
    failing: tuple[str, ...] = ()


def read_state(folder: Path) -> SyncState:
    """Return the state of the last round; if the file cannot be read, the state before the first round."""
    try:
        with (folder / STATE).open("rb") as file:
            return SyncState.model_validate_json(file.read(STATE_LIMIT_BYTES))
    except (OSError, ValidationError):
        return SyncState()


def write_state(folder: Path, state: SyncState) -> None:
    """Write the state of a round atomically; if the folder is not writable, log a warning."""
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=f"{STATE}.") as stage:
            staged = Path(stage) / STATE
            staged.write_bytes(canonical_json(state.model_dump(mode="json")))
            staged.replace(folder / STATE)
    except OSError as error:
        logger.warning("%s cannot be written (%s)", STATE, error.strerror)


def read_mirror_state(folder: Path, *, now_s: float) -> MirrorState | None:
    """Return the sync state of a folder for readiness responses; None if there was no round yet."""
    written = read_state(folder)
    if written == SyncState():
        return None
    age_s = max(0.0, now_s - written.at) if written.at else None
    return MirrorState(age_s=age_s, error=written.error, failing=list(written.failing))


class Sync:
    """Repeated copying of the registry to one folder, in rounds.

    State is kept between rounds, so that verified bundles are not read again and only changes are logged.
    """

    def __init__(self, settings: ServeSettings, *, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._clock = clock
        self._verified: Verified = {}
        self._logged: dict[str, str] = {}
        self.state = read_state(settings.bundles)

    def once(self) -> list[Mirrored]:
        """Copy the champions, remove old versions, and write the state of this round."""
        settings, attempted_at = self._settings, self._clock()
        if settings.tracking_uri is None:
            raise MirrorError("no registry to mirror; set TAUT_SERVE_TRACKING_URI, or serve the models in the folder")
        try:
            settings.bundles.mkdir(parents=True, exist_ok=True)
            done = mirror(settings.tracking_uri, settings.bundles, verified=self._verified)
            for name in model_names(settings.bundles):
                prune(settings.bundles, name, now=attempted_at)
        except (MirrorError, OSError) as error:
            self.state = self.state.model_copy(update={"attempted_at": attempted_at, "error": str(error)[:500]})
            write_state(settings.bundles, self.state)
            raise error if isinstance(error, MirrorError) else MirrorError(f"bundles: {error}") from error
        failing = tuple(f"{each.name}: {each.detail}" for each in done if each.outcome == "failed")
        self.state = SyncState(at=self._clock(), attempted_at=attempted_at, error=None, failing=failing)
        write_state(settings.bundles, self.state)
        return done

    def until(self, stop: threading.Event, *, draw: Callable[[], float] = random.random) -> None:
        """Run rounds until `stop` is set, at longer intervals while the registry is unavailable."""
        failed = 0
        while not stop.is_set():
            try:
                done, failed = self.once(), 0
            except MirrorError as error:
                failed += 1
                self._log(REGISTRY, str(error), logging.WARNING)
            else:
                if self._logged.pop(REGISTRY, None):
                    logger.info("registry is available again")
                for each in done:
                    line = f"{each.name}@{each.version} {each.outcome}"
                    level = logging.WARNING if each.outcome == "failed" else logging.INFO
                    self._log(
                        each.name,
                        f"{line}: {each.detail}" if each.detail else line,
                        logging.DEBUG if each.outcome == "present" else level,
                    )
            stop.wait(wait_s(self._settings.mirror_every_s, failed, draw()))

    def _log(self, key: str, line: str, level: int) -> None:
        """Log a line about a model or the registry unless it is that of the last round."""
        if self._logged.get(key) != line:
            logger.log(level, "%s", line)
        self._logged[key] = line


def wait_s(every_s: float, failed: int, drawn: float) -> float:
    """Return the wait in seconds after `failed` failed rounds in a row; `drawn` is a random number from 0 to 1.

    >>> [wait_s(5.0, failed, 0.0) for failed in (0, 1, 2, 9)]
    [5.0, 10.0, 20.0, 300.0]
    >>> wait_s(5.0, 0, 1.0)
    4.0
    """
    longest = max(WAIT_MOST_S, every_s)
    return min(every_s * 2.0 ** min(failed, 30), longest) * (1.0 - JITTER_FRAC * drawn)


def prune(folder: Path, name: str, *, now: float) -> list[str]:
    """Remove the versions of a model but its champion and the newest `KEPT_VERSIONS`, and return those removed.

    Temporary folders of interrupted downloads are removed as well.
    """
    inside = list((folder / name).iterdir())
    for each in inside:
        if each.name.startswith(".") and now - each.lstat().st_mtime > LEFTOVER_S:
            shutil.rmtree(each, ignore_errors=True)
    held = sorted((each for each in inside if each.name.isdigit()), key=lambda each: int(each.name))
    try:
        pointer = read_pointer(folder, name)
    except BundleError:
        return []  # the champion is unknown, so remove nothing
    old = [each for each in held if pointer is None or each.name != pointer.version][:-KEPT_VERSIONS]
    for each in old:
        if each.is_symlink():
            each.unlink()
        else:
            shutil.rmtree(each)
    return [each.name for each in old]


def main() -> None:
    """Copy models until SIGTERM or SIGINT; without a registry, log an error and exit.

    The rounds run in a thread, because an exception from a signal handler would break into a query of the registry.
    """
    settings = ServeSettings()
    if settings.tracking_uri is None:
        logger.error("no registry to mirror, expected TAUT_SERVE_TRACKING_URI")
        sys.exit(2)
    stop = threading.Event()

    def end(*_: object) -> None:
        if stop.is_set():
            # Nothing is half-written: bundles and pointers are moved into place whole.
            os._exit(0)
        stop.set()
        signal.alarm(END_WITHIN_S)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, end)
    rounds = threading.Thread(target=Sync(settings).until, args=(stop,), daemon=True)
    rounds.start()
    rounds.join()
    signal.alarm(0)
    sys.exit(0 if stop.is_set() else 1)
