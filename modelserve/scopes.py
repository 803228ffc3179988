"""Scopes: the kinds of call that a token permits. Imported by `taut token`'s options, so it loads no package."""

from enum import StrEnum

__all__ = ["Scope"]


class Scope(StrEnum):
    """A kind of call that a token permits; `accounting` is believed feedback, from the cluster's own records."""

    PREDICT = "predict"
    FEEDBACK = "feedback"
    ACCOUNTING = "accounting"
    ADMIN = "admin"
