import math

import numpy as np
import pytest

from scheduler_core.errors import BadInput
from scheduler_core.planning.carbon.round import Reading, Source, read_intensity
from scheduler_core.planning.grid import Grid
from scheduler_core.planning.hourly import HourlySeries

EARLIER = Reading(g_per_kwh=200.0, reported_ts=1000.0, source=Source.REPORTED)
SERIES = HourlySeries(start_s=0.0, values=np.array([120.0, 240.0]), unit="g/kWh")


def broken(ts: float) -> float:
    raise RuntimeError("the provider's own error")


def away(ts: float) -> float:
    raise BadInput("the feed is away")


@pytest.mark.parametrize("told", [SERIES.at, Grid(zone="DE", carbon=SERIES).carbon_g_per_kwh])
def test_the_newest_value_is_taken(told) -> None:
    reading = read_intensity(told, 3700.0, before=EARLIER, fallback_g_per_kwh=900.0)

    assert reading == Reading(g_per_kwh=240.0, reported_ts=3700.0, source=Source.REPORTED)


@pytest.mark.parametrize(
    "told",
    [
        away,
        broken,
        lambda ts: None,
        lambda ts: "much",
        lambda ts: math.nan,
        lambda ts: -3.0,
        lambda ts: math.inf,
        SERIES.at,
    ],
)
def test_the_last_value_told_stands_in_while_nobody_tells(told) -> None:
    reading = read_intensity(told, 8000.0, before=EARLIER, fallback_g_per_kwh=900.0, most_age_s=7000.0)

    assert reading == Reading(g_per_kwh=200.0, reported_ts=1000.0, source=Source.KEPT)


def test_its_age_counts_from_when_it_was_told_not_from_when_it_was_kept() -> None:
    kept = read_intensity(away, 5000.0, before=EARLIER, fallback_g_per_kwh=900.0, most_age_s=7000.0)

    later = read_intensity(away, 8001.0, before=kept, fallback_g_per_kwh=900.0, most_age_s=7000.0)

    assert later.source is Source.FALLBACK
    assert later.g_per_kwh == 900.0


@pytest.mark.parametrize("before", [None, EARLIER])
def test_the_fallback_is_for_what_nobody_ever_told_or_will_only_tell(before: Reading | None) -> None:
    assert read_intensity(away, 10.0, before=before, fallback_g_per_kwh=900.0).source is Source.FALLBACK


def test_a_fallback_is_not_kept_as_if_it_had_been_told() -> None:
    first = read_intensity(away, 10.0, before=None, fallback_g_per_kwh=900.0)

    assert read_intensity(away, 11.0, before=first, fallback_g_per_kwh=500.0).g_per_kwh == 500.0


@pytest.mark.parametrize("fallback", [-1.0, math.nan, math.inf])
def test_a_fallback_that_no_intensity_can_be_is_refused(fallback: float) -> None:
    with pytest.raises(BadInput, match="fallback"):
        read_intensity(away, 0.0, before=None, fallback_g_per_kwh=fallback)
