"""A lake in an S3-compatible object store: its objects through fsspec, and a local copy of the files that were read.

Credentials and endpoint are those that AWS tools use; nothing here prints or stores them. Table files are named by
their content and never change, so a copy stays valid. An ingest uploads files, then replaces the manifest by one
conditional PUT, which fails if another process committed the trace meanwhile. There is no lock, so a sweep may meet
files of an ingest that still runs: it deletes only files of its own trace that are older than a day.
"""

import errno
import hashlib
import os
import re
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from pipelines.errors import BadUsage, LakeError, PipelineError
from pipelines.lake.manifest import Output, fingerprint
from pipelines.lake.storage import exclusive, scratch
from pipelines.lake.views import COLUMNS

__all__ = ["Bucket"]

ADDRESS: Final = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?P<prefix>(/[\w.!*'()-]+)*)/?")
EXPECTED: Final = "expected a folder, or s3://BUCKET/PREFIX; AWS_ENDPOINT_URL names a store other than AWS"
LEFTOVER_S: Final = 86_400
"""Age in seconds from which a file that no manifest names is deleted."""
CONNECTION: Final = {"connect_timeout": 5, "read_timeout": 60, "retries": {"mode": "standard", "max_attempts": 3}}
WRONG_KEY: Final = {
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "InvalidToken",
    "ExpiredToken",
    "TokenRefreshRequired",
}
CHANGED: Final = {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}
KEYS: Final = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
LOCAL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}
DIGITS: Final = 16
"""Length of a table file's name: the first hexadecimal digits of its SHA-256."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A manifest as it was read: its text, and the tag of that version in the store."""

    text: str
    tag: str


class Bucket:
    """A lake in a bucket, below a prefix; an object sees the manifests as they were at its first reading."""

    def __init__(self, address: str) -> None:
        found = ADDRESS.fullmatch(address)
        if found is None:  # the address may hold a password, so only its scheme is printed
            scheme = address.partition("://")[0]
            found_out = "invalid address" if scheme == "s3" else "unknown scheme"
            raise BadUsage(f"a lake at {scheme[:20]}://...: {found_out}; {EXPECTED}")
        self.bucket = found["bucket"]
        self.root = f"{self.bucket}{found['prefix']}"
        name = f"{self.bucket}-{hashlib.sha256(self.root.encode()).hexdigest()[:12]}"
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        self.folder = Path(cache).absolute() / "taut" / "lakes" / name
        self._snapshot: dict[str, _Held] | None = None

    @property
    def where(self) -> str:
        """Return the address of the lake."""
        return f"s3://{self.root}"

    def manifests(self) -> dict[str, str]:
        """Return the text of every manifest, by trace."""
        return {trace: held.text for trace, held in self._held().items()}

    def local(self, outputs: Sequence[Output]) -> list[Path]:
        """Return the paths of the local copies of table files, after downloading those that are missing."""
        held = {each.path: self.folder / each.path for each in outputs}
        absent = [
            each for each in outputs if not held[each.path].is_file() or held[each.path].stat().st_size != each.bytes
        ]
        if absent:
            with self.staged("fetch") as folder, self._talking("reading"):
                copies = [folder / f"{n}.parquet" for n, _ in enumerate(absent)]
                try:
                    self._files.get([self._key(each.path) for each in absent], [str(copy) for copy in copies])
                except FileNotFoundError as error:
                    raise LakeError(
                        f"a table of {self.where} is gone: the trace was ingested again, or files were removed; "
                        "run the command again, else ingest the trace again"
                    ) from error
                for each, copy in zip(absent, copies, strict=True):
                    self._keep(each, copy)
            self._evict()
        return [held[each.path] for each in outputs]

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Note the present manifests, which `commit` replaces only if no other process did."""
        self._snapshot = None
        if not self._held():
            with self._talking("reading"):
                names = self._files.ls(self.root, detail=False) if self._files.exists(self.root) else []
            # An ingest deletes files that no manifest names; in a prefix that is not a lake they could be the user's.
            if {name.rpartition("/")[2] for name in names} - {*COLUMNS, "manifests", ""}:
                raise LakeError(f"{self.where} is not empty and no lake; expected a new or empty prefix, or a lake")
        self._below("manifests")
        yield

    def rebuilding(self) -> AbstractContextManager[None]:
        """Hold the lock of the local copy."""
        return exclusive(self.folder / ".lock", LakeError(f"another process rebuilds the views of {self.where}"))

    def staged(self, name: str) -> AbstractContextManager[Path]:
        """Yield an empty folder beside the local copy, removed at the end, or after a kill by the next process."""
        return scratch(self._below("staging"), f"{name}-")

    def place(self, staged: Path, path: str) -> None:
        """Upload a staged file unless a manifest names it and the bucket has it; keep it as local copy."""
        size, key = staged.stat().st_size, self._key(path)
        named = any(f'"{path}"' in held.text for held in self._held().values())
        with self._talking("writing"):
            if not (named and self._files.exists(key) and self._files.size(key) == size):
                self._files.put_file(str(staged), key)
        self._keep(Output(table="", cluster="", path=path, rows=0, bytes=size), staged)

    def commit(self, trace: str, text: str) -> None:
        """Replace a trace's manifest by one PUT, on condition that it is the one that was read."""
        held, key = self._held().get(trace), self._key(f"manifests/{trace}.json")
        condition = {"IfNoneMatch": "*"} if held is None else {"IfMatch": held.tag}
        with self._talking("writing"):
            try:
                self._files.pipe_file(key, text.encode(), **condition)
            except OSError as error:
                # A repeated request fails too if the answer to the first one was lost.
                if not _refused(error) or self._files.cat_file(key) != text.encode():
                    raise
        self._snapshot = None

    def intact(self, outputs: Sequence[Output]) -> bool:
        """Return whether the bucket holds every file with its recorded size."""
        folders = {output.path.rpartition("/")[0] for output in outputs}
        with self._talking("reading"):
            found = {key: each["size"] for folder in folders for key, each in self._found(folder).items()}
        return all(found.get(self._key(output.path)) == output.bytes for output in outputs)

    def sweep(self, trace: str, named: Collection[str], unreadable: Collection[str]) -> None:
        """Delete files of the trace that no manifest names and that are older than a day."""
        if trace in unreadable:
            return
        before, kept = time.time() - LEFTOVER_S, {self._key(path) for path in named}
        with self._talking("writing"):
            for table in COLUMNS:
                found = self._found(f"{table}/trace={trace}")
                old = [key for key, each in found.items() if each["LastModified"].timestamp() < before]
                if gone := [key for key in old if key not in kept]:
                    self._files.rm(gone)

    @cached_property
    def _files(self) -> Any:  # Any: fsspec has no types
        try:
            import fsspec

            # Without caches: other processes write to the bucket.
            return fsspec.filesystem("s3", use_listings_cache=False, skip_instance_cache=True, config_kwargs=CONNECTION)
        except ImportError as error:
            raise BadUsage(f"a lake at {self.where} needs the package s3fs: pip install 'taut[s3]'") from error

    def _held(self) -> dict[str, _Held]:
        if self._snapshot is None:
            with self._talking("reading"):
                found = {key: each for key, each in self._found("manifests").items() if key.endswith(".json")}
                texts = self._files.cat(list(found)) if found else {}
            names = {key: key.rpartition("/")[2].removesuffix(".json") for key in found}
            self._snapshot = {names[key]: _Held(texts[key].decode(), found[key]["ETag"]) for key in sorted(found)}
        return self._snapshot

    def _found(self, folder: str) -> dict[str, dict[str, Any]]:  # Any: what the store says of an object
        found = self._files.find(self._key(folder), detail=True)
        return {key: each for key, each in found.items() if each["type"] == "file"}

    def _key(self, path: str) -> str:
        return f"{self.root}/{path}"

    def _talking(self, doing: str) -> AbstractContextManager[None]:
        return _translated(self.where, self.bucket, doing)

    def _below(self, name: str) -> Path:
        """Return a folder of the local copy, created if missing; other users may not read the copy."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return folder

    def _keep(self, output: Output, copy: Path) -> None:
        """Move a whole file into the local copy; raise LakeError if it is not the one of its name."""
        size, digest = fingerprint(copy)
        name = output.path.rpartition("/")[2].removesuffix(".parquet")
        if size != output.bytes or (len(name) == DIGITS and not digest.startswith(name)):
            raise LakeError(f"{self.where}/{output.path} is damaged; remove it, and ingest the trace again")
        place = self.folder / output.path
        place.parent.mkdir(parents=True, exist_ok=True)
        copy.replace(place)

    def _evict(self) -> None:
        """Delete local copies of files that no manifest names any more and that are older than a day."""
        named, before = "".join(self.manifests().values()), time.time() - LEFTOVER_S
        for table in COLUMNS:
            for copy in (self.folder / table).rglob("*.parquet"):
                if copy.name not in named and copy.stat().st_mtime < before:
                    copy.unlink(missing_ok=True)


@contextmanager
def _translated(where: str, bucket: str, doing: str) -> Iterator[None]:
    """Turn the errors of the block's requests into errors in own words: the texts of a store are not printed."""
    try:
        yield
    except PipelineError:
        raise
    except FileNotFoundError as error:
        raise BadUsage(f"{where}: no bucket {bucket!r}; create it, or correct --lake") from error
    except Exception as error:
        # Importing botocore takes time; it is imported by now.
        from botocore import exceptions as boto

        code = _code(error)
        if isinstance(error, OSError) and error.errno in LOCAL:
            raise LakeError(f"{doing} {where}: {error.strerror}; free space for the local copy") from error
        if _refused(error):
            raise LakeError(
                f"another ingest changed this trace of {where}; nothing was committed, run it again"
            ) from error
        if code in WRONG_KEY:
            raise BadUsage(f"{where}: the store does not accept the key ({code}); set {KEYS}") from error
        if isinstance(error, PermissionError):
            raise BadUsage(f"{where}: {doing} is denied; use a key that may do this, set {KEYS}") from error
        if isinstance(error, boto.NoCredentialsError | boto.PartialCredentialsError | boto.ProfileNotFound):
            raise BadUsage(f"{where}: no credentials; set {KEYS}") from error
        if isinstance(error, boto.HTTPClientError | boto.ConnectionError | ConnectionError | TimeoutError):
            raise BadUsage(f"{where}: the store does not answer; check the network and AWS_ENDPOINT_URL") from error
        if isinstance(error, ValueError | boto.BotoCoreError) and code is None:
            raise BadUsage(
                f"{where}: invalid settings of AWS ({type(error).__name__}); check AWS_* and the profile"
            ) from error
        if isinstance(error, OSError | boto.ClientError):
            raise LakeError(f"{doing} {where} failed ({code or type(error).__name__}); try again") from error
        raise


def _refused(error: BaseException) -> bool:
    """Return whether the store refused a write because its condition does not hold."""
    return _code(error) in CHANGED


def _code(error: BaseException) -> str | None:
    """Return the code of the store's answer, None for an error without one; s3fs raises OSError from the answer."""
    for each in (error, error.__cause__, error.__context__):
        response = getattr(each, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code"))
    return None
