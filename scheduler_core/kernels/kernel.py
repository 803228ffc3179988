"""How the loops of this package are compiled, and how what was compiled is kept for the next process.

No loop is here. Called by every other file of this package.
The compiled code is kept beside these files, else in numba's user cache; `NUMBA_CACHE_DIR` names another place.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numba

Compiled = Callable[..., Any]  # numba publishes no types: a kernel's own annotations say what it takes


def digest(folder: Path) -> str:
    """Return one number for all the sources in a folder."""
    files = sorted(folder.glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


SOURCES: Final = digest(Path(__file__).parent)
"""Digest of every file here. Numba keeps a function under the digest of its own file only, so what is called from
outside closes over this one too: a change in any file compiles anew."""


_BARE: Final = {"_nrt": False}
"""No counting of who refers to an array: kernels allocate nothing, and counting at every call of one took fifteen times
as long as the work itself."""


def kernel(function: Callable[..., Any]) -> Compiled:
    """Compile a function that other kernels call; it is kept as part of them."""
    made: Compiled = numba.njit(**_BARE)(function)
    return made


def kept(function: Callable[..., Any]) -> Compiled:
    """Compile a function that Python calls, from the cache where there is one."""
    try:
        made: Compiled = numba.njit(cache=True, **_BARE)(function)
    except RuntimeError:  # no folder to keep it in can be written: every process compiles for itself
        made = numba.njit(**_BARE)(function)
    return made
