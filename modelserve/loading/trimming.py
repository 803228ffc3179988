"""Free memory given back to the system, after what leaves much of it between what lives.

Nothing is freed here. Called by `modelserve.loading` once models were loaded, or a history was put together anew.
"""

import ctypes
from typing import Final

_C_LIBRARY: Final = ctypes.CDLL(None)


def give_back_memory() -> None:
    """Give back the free pages of every arena, where the C library can: glibc does by itself at the top of one only.

    A history that is put together anew takes tens of mebibytes of arrays and frees as many, in holes that no later
    request fits: a worker grew by 16 MiB each time, of which all was free. It takes about a millisecond. A fixed
    `MALLOC_MMAP_THRESHOLD_` does the same for every array, at a tenth of the time of a call of a thousand jobs.
    """
    trim = getattr(_C_LIBRARY, "malloc_trim", None)
    if trim is not None:
        trim(0)
