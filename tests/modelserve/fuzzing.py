"""Inputs for parsers: a seeded mutator, far faster than drawing each input, and limits on what one input may take."""

import random
import resource
import time
from collections.abc import Callable, Sequence
from typing import Final

BATCH: Final = 250
"""Inputs altered from one seed."""
LIMIT_S: Final = 1.0
"""Longest CPU time that parsing one input may take; all are shorter than 100 KB."""
GROWTH_KIB: Final = 200_000
"""Most memory that a batch of inputs may add to the largest that the process has had."""
MOST_EDITS: Final = 5
MOST_COPIES: Final = 300

TOKENS: Final = (
    *(
        b"\0",
        b"\r\n",
        b"\r\n\r\n",
        b'"',
        b"{",
        b"[" * 200,
        b"}",
        b"]",
        b",",
        b":",
        b"=",
        b"#",
        b"../",
        b"\xff",
        b"\xc3\xa9",
    ),
    *(b"NaN", b"Infinity", b"1e999", b"-1", b"1" * 400, b"1.0", b"3.0", b"null", b"true", b"\\u0000", b"\\ud800"),
    *(b"HTTP/1.0", b"content-length: 9\r\n", b"transfer-encoding: chunked\r\n", b"host: b\r\n", b"expect: x\r\n"),
    *(b"a." * 50, b"[[a]]\n", b"'''", b'"""'),
    *(b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff" * 8, b"\0" * 8, b"\x7f" + b"\xff" * 7, b"[$d#L", b"[#L"),
)
"""Pieces that mean something to one of the parsers."""


def altered(data: bytes, corpus: Sequence[bytes], rng: random.Random) -> bytes:
    """Return the bytes after one to `MOST_EDITS` random edits; some take parts of the corpus."""
    for _ in range(rng.randint(1, MOST_EDITS)):
        at = rng.randrange(len(data) + 1)
        to = min(at + rng.randrange(13), len(data))
        match rng.randrange(8):
            case 0:
                new = rng.choice(TOKENS)
            case 1:
                new = rng.randbytes(rng.randrange(7))
            case 2:  # one changed bit
                new, to = bytes(byte ^ (1 << rng.randrange(8)) for byte in data[at : at + 1]), at + 1
            case 3:  # a part again, sometimes many times
                new, to = data[at:to] * rng.choice((2, 2, 2, MOST_COPIES)), to
            case 4:  # a part of another input
                other = rng.choice(corpus)
                start = rng.randrange(len(other) + 1)
                new = other[start : start + rng.randrange(200)]
            case 5:  # another number of the same length
                new, to = rng.choice((b"\0", b"\xff", b"9", b"0", b"-")) * (to - at), to
            case 6:  # cut short
                new, to = b"", len(data) if rng.random() < 0.2 else to
            case _:
                new, to = rng.choice(TOKENS), at
        data = data[:at] + new + data[to:]
    return data


def parse_altered(corpus: Sequence[bytes], seed: int, parse: Callable[[bytes], object]) -> None:
    """Parse `BATCH` altered inputs; fail with the input if one raises, or takes too much time or memory."""
    rng = random.Random(seed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(BATCH):
        data = altered(rng.choice(corpus), corpus, rng)
        try:
            taken = _cpu_s(parse, data)
            if taken >= LIMIT_S:  # once may be the garbage collector's, or the machine's
                taken = min(_cpu_s(parse, data) for _ in range(3))
        except Exception as error:
            error.add_note(f"input: {data!r}")
            raise
        assert taken < LIMIT_S, f"{taken:.1f} s of CPU for {data!r}"
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < GROWTH_KIB, f"{grown} KiB for one of {BATCH} inputs of seed {seed}"


def _cpu_s(parse: Callable[[bytes], object], data: bytes) -> float:
    start = time.thread_time()
    parse(data)
    return time.thread_time() - start
