"""Memory that is free between what lives goes back to the system."""

import os
import platform
from pathlib import Path

import pytest

from modelserve.loading.trimming import give_back_memory

MIB = 2**20


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have nothing to call")
def test_free_pages_below_what_lives_are_given_back() -> None:
    blocks = [b"x" * 65_536 for _ in range(1024)]
    last = blocks.pop()
    blocks.clear()
    before = _resident_bytes()

    give_back_memory()

    assert before - _resident_bytes() > 32 * MIB
    assert last.startswith(b"x")
