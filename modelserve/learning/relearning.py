"""Rebuild the learnt state from all that is stored, and apply one change to it.

Nothing is written, and no model is changed. Called by `modelserve.learning.feed`.
"""

from modelserve.learning.learned import FeedbackState
from modelserve.settings import ServeSettings
from modelserve.store import Store
from modelserve.store.controls import Brake, ModeSet, Reset, controls_between
from modelserve.store.finished import Finished, Outcome, outcomes_between


def state_of(store: Store, settings: ServeSettings, upto: int) -> FeedbackState:
    """Return the state after all stored changes up to number `upto`.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    state = FeedbackState(settings=settings, seq=upto)
    controls: list[ModeSet | Reset | Brake] = [
        *controls_between(store, ModeSet, 0, upto),
        *controls_between(store, Reset, 0, upto),
        *controls_between(store, Brake, 0, upto),
    ]
    controls.sort(key=lambda change: change.seq, reverse=True)
    for outcome in outcomes_between(store, 0, upto):
        while controls and controls[-1].seq < outcome.seq:
            apply(state, controls.pop())
        state.finish(outcome)
    while controls:
        apply(state, controls.pop())
    return state


def apply(state: FeedbackState, change: Finished | Outcome | ModeSet | Reset | Brake) -> None:
    """Apply one change to the state."""
    if isinstance(change, ModeSet):
        state.set_mode(change)
    elif isinstance(change, Reset):
        state.reset(change)
    elif isinstance(change, Brake):
        state.brake(change)
    else:
        state.finish(change)
