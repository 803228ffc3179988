"""Sizes and checksums of files on disk.

What to do about a difference is the callers' matter. Called by `pipelines.{download, archives, fetch}`.
"""

import hashlib
from pathlib import Path


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def mismatch(path: Path, *, size_bytes: int | None, sha256: str | None) -> str | None:
    """Say what was found and what was expected when a file differs from what it should be; null is not compared.

    Examples
    --------
    >>> mismatch(Path(__file__), size_bytes=None, sha256=None) is None
    True
    """
    found_bytes = path.stat().st_size
    if size_bytes is not None and found_bytes != size_bytes:
        return f"found {found_bytes} bytes, expected {size_bytes}"
    if sha256 is not None and (found := checksum(path)) != sha256:
        return f"found SHA-256 {found[:12]}..., expected {sha256[:12]}..."
    return None
