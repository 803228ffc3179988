"""Tokens: looked up by their hash, all of them compared."""

import hashlib
import hmac

import pytest

from modelserve.callers import ANYONE, Caller, Token, caller_of
from modelserve.errors import Forbidden
from modelserve.scopes import Scope

TOKENS = [
    Token(name=name, sha256=hashlib.sha256(name.encode()).hexdigest(), scopes=frozenset({Scope.PREDICT}))
    for name in ("one", "two", "three")
]


def test_without_tokens_anyone_may_call() -> None:
    assert caller_of(None, ()) is ANYONE


@pytest.mark.parametrize("header", [b"Bearer two", b"bearer two", b"BEARER  two "])
def test_a_token_stands_for_its_caller(header: bytes) -> None:
    caller = caller_of(header, TOKENS)

    assert caller is not None
    assert (caller.name, caller.scopes) == ("two", {Scope.PREDICT})


@pytest.mark.parametrize(
    "header", [None, b"", b"Bearer", b"Bearer ", b"Bearer four", b"Basic two", b"two", b"Bearer " + b"a" * 600, b"\xff"]
)
def test_anything_else_stands_for_nobody(header: bytes | None) -> None:
    assert caller_of(header, TOKENS) is None


def test_every_token_is_compared_whichever_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    compare = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append(a) or compare(a, b))

    caller_of(b"Bearer one", TOKENS)

    assert len(compared) == 3


def test_accounting_permits_feedback_alone() -> None:
    caller = Caller(name="slurm", scopes=frozenset({Scope.ACCOUNTING}))

    caller.check_scope(Scope.FEEDBACK)
    with pytest.raises(Forbidden, match="lacks the scope predict"):
        caller.check_scope(Scope.PREDICT)
    assert caller.believed
    assert not ANYONE.believed
