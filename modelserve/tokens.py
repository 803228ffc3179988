"""Bearer tokens: the text a caller presents, hashed and looked up among those of the settings.

No scopes or reach are judged here, and no header is written; a token's text is never kept.
Called by `modelserve.api.admission`.
"""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from modelserve.callers import ANYONE, Caller
from modelserve.settings import Token

BEARER: Final = b"bearer "
TOKEN_LIMIT_BYTES: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The tokens that are known, by the SHA-256 of their text (hex), and whom each stands for."""

    known: tuple[tuple[str, Caller], ...]

    @classmethod
    def of(cls, tokens: Sequence[Token]) -> "Tokens":
        """Take the tokens of the settings; none at all means that anyone may call."""
        return cls(
            known=tuple(
                (
                    token.sha256,
                    Caller(name=token.name, scopes=token.scopes, traces=token.traces, clusters=token.clusters),
                )
                for token in tokens
            )
        )

    @property
    def needed(self) -> bool:
        """Whether a call has to bring a token."""
        return bool(self.known)

    def caller_of(self, authorization: bytes | None) -> Caller | None:
        """Return whom an `Authorization` header stands for, None where it stands for nobody.

        Every known token is compared, each in constant time: how long it takes says nothing about any of them.

        Examples
        --------
        >>> Tokens.of(()).caller_of(None).name
        'anyone'
        """
        if not self.known:
            return ANYONE
        if authorization is None or authorization[: len(BEARER)].lower() != BEARER:
            return None
        presented = authorization[len(BEARER) :].strip()
        if not presented or len(presented) > TOKEN_LIMIT_BYTES:
            return None
        digest = hashlib.sha256(presented).hexdigest()
        found = None
        for known, caller in self.known:
            if hmac.compare_digest(known, digest):
                found = caller
        return found
