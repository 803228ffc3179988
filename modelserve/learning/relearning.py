"""Lessons learnt anew from all that is stored, and one change applied to them.

Nothing is written, and no model is told. Called by `modelserve.learning.feed`.
"""

from modelserve.contract.feedback_rules import Lessons
from modelserve.settings import ServeSettings
from modelserve.store import Store
from modelserve.store.controls import Brake, ModeSet, Reset, controls_between
from modelserve.store.finished import Finished, Outcome, outcomes_between


def lessons_of(store: Store, settings: ServeSettings, upto: int) -> Lessons:
    """Return what all changes up to number `upto` taught, as far as they are still there.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    lessons = Lessons(settings=settings, seq=upto)
    controls: list[ModeSet | Reset | Brake] = [
        *controls_between(store, ModeSet, 0, upto),
        *controls_between(store, Reset, 0, upto),
        *controls_between(store, Brake, 0, upto),
    ]
    controls.sort(key=lambda change: change.seq, reverse=True)
    for outcome in outcomes_between(store, 0, upto):
        while controls and controls[-1].seq < outcome.seq:
            apply(lessons, controls.pop())
        lessons.finish(outcome)
    while controls:
        apply(lessons, controls.pop())
    return lessons


def apply(lessons: Lessons, change: Finished | Outcome | ModeSet | Reset | Brake) -> None:
    """Let one change teach what it teaches."""
    if isinstance(change, ModeSet):
        lessons.set_mode(change)
    elif isinstance(change, Reset):
        lessons.reset(change)
    elif isinstance(change, Brake):
        lessons.brake(change)
    else:
        lessons.finish(change)
