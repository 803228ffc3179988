"""Grid files: published and own forms, readings to hours, and every odd file refused by its line."""

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.errors import BadUsage
from pipelines.simulation.energy import grid_columns
from pipelines.simulation.energy.grid_files import LONGEST_GAP_H, hourly, of_one_year, zone_files, zones_of
from scheduler_core.errors import BadInput

PUBLISHED_CARBON = (
    "Datetime (UTC),Country,Zone Name,Zone Id,Carbon Intensity gCO₂eq/kWh (direct),"
    "Carbon Intensity gCO₂eq/kWh (LCA),Data Source\r\n"
    "2023-01-01 00:00:00,Germany,Germany,DE,140.51,185.8,entsoe.eu\r\n"
    "2023-01-01 01:00:00,Germany,Germany,DE,140.44,185.7,entsoe.eu\r\n"
)
PUBLISHED_PRICE = (
    "Datetime (UTC),Datetime (Local),Price (USD/MWh)\n"
    "2023-01-01 00:00:00+00:00,2023-01-01 01:00:00+01:00,-3.5\n"
    "2023-01-01 01:00:00+00:00,2023-01-01 02:00:00+01:00,120\n"
)
NEW_YEAR_TS = 1_672_531_200.0


def zone(folder: Path, **files: str) -> Path:
    """Write the files of a zone `Z`, `carbon` and `price` being the 2023 ones; return the folder of zones."""
    for name, text in files.items():
        path = folder / "Z" / f"{name if '_' in name else name + '_2023'}.csv"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode())
    return folder


def test_published_files_are_read_by_their_life_cycle(tmp_path: Path) -> None:
    folder = zone(tmp_path, carbon=PUBLISHED_CARBON, price=PUBLISHED_PRICE)

    read = zone_files(folder, "Z")

    assert read.carbon is not None
    assert read.price is not None
    assert (read.carbon.start_s, read.carbon.values.tolist()) == (NEW_YEAR_TS, [185.8, 185.7])
    assert read.price.values.tolist() == [-0.0035, 0.12]
    assert "(LCA)" in read.notes[0]
    assert "the files name the zone DE" in read.notes[0]
    assert "2 hours from 2023-01-01 00:00 UTC" in read.notes[1]


def test_years_of_a_zone_are_joined(tmp_path: Path) -> None:
    folder = zone(
        tmp_path,
        carbon_2022="ts,carbon_g_per_kwh\n2022-12-31T23:00Z,50\n",
        carbon_2023="ts,carbon_g_per_kwh\n2023-01-01T00:00Z,60\n",
    )
    read = zone_files(folder)

    assert read.carbon is not None
    assert read.carbon.values.tolist() == [50.0, 60.0]
    assert read.price is None
    assert read.notes[1] == "Z: no file of price"


def test_own_prices_tell_their_unit(tmp_path: Path) -> None:
    read = zone_files(zone(tmp_path, price="ts,price_usd_per_kwh\n2023-01-01,0.5\n"))

    assert read.price is not None
    assert read.price.values.tolist() == [0.5]


def test_stamps_with_offsets_are_exact_through_the_change_of_the_clocks(tmp_path: Path) -> None:
    # In Berlin 02:00 comes twice on 2023-10-29, at +02:00 and at +01:00.
    text = "ts,carbon_g_per_kwh\n" + "".join(
        f"2023-10-29T0{hour}:00:00+0{offset}:00,{number}\n"
        for number, (hour, offset) in enumerate([(1, 2), (2, 2), (2, 1), (3, 1)], start=100)
    )
    read = zone_files(zone(tmp_path, carbon=text))

    assert read.carbon is not None
    assert read.carbon.values.tolist() == [100.0, 101.0, 102.0, 103.0]
    assert not read.carbon.filled.any()


def test_stamps_without_an_offset_are_utc_wherever_the_clock_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = zone(tmp_path, carbon=PUBLISHED_CARBON)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        read = zone_files(folder)
    time.tzset()

    assert read.carbon is not None
    assert read.carbon.start_s == NEW_YEAR_TS


def test_what_was_repaired_is_counted(tmp_path: Path) -> None:
    hours = [(hour, 100 + hour) for hour in range(30) if hour != 26]
    lines = [f"2023-05-{1 + hour // 24:02}T{hour % 24:02}:00Z,{value}" for hour, value in hours]
    lines[3], lines[4] = lines[4], lines[3]
    lines += ["2023-05-01T07:30Z,207", "2023-05-01T09:00Z,"]

    read = zone_files(zone(tmp_path, carbon="ts,carbon_g_per_kwh\n" + "\n".join(lines) + "\n"))

    assert read.carbon is not None
    assert np.flatnonzero(read.carbon.filled).tolist() == [26]
    assert read.carbon.values[[7, 9, 26]].tolist() == [157.0, 109.0, 102.0]
    assert "1 hours without a value" in read.notes[0]
    assert "1 hours averaged from several readings" in read.notes[0]
    assert "2 readings out of order" in read.notes[0]


def every(hours: int) -> str:
    """Return a file of one value every so many of 97 hours."""
    lines = [f"2023-05-{1 + h // 24:02}T{h % 24:02}:00Z,{100 + h}\n" for h in range(0, 97, hours)]
    return "ts,carbon_g_per_kwh\n" + "".join(lines)


@pytest.mark.parametrize(("hours", "filled"), [(3, 64), (24, 92)])
def test_a_series_of_mostly_filled_hours_is_refused(tmp_path: Path, hours: int, filled: int) -> None:
    with pytest.raises(BadUsage, match=f"no value for {filled} of 97 hours, expected at most 50%"):
        zone_files(zone(tmp_path, carbon=every(hours)))


def test_the_grid_goes_round_over_the_days_both_series_tell(tmp_path: Path) -> None:
    carbon = "".join(f"2023-05-{1 + h // 24:02}T{h % 24:02}:00Z,{100 + h}\n" for h in range(80))
    price = "".join(f"2023-05-{1 + h // 24:02}T{h % 24:02}:00Z,{h}\n" for h in range(10, 100))
    grid = zone_files(
        zone(tmp_path, carbon="ts,carbon_g_per_kwh\n" + carbon, price="ts,Price (USD/MWh)\n" + price)
    ).grid(1.3)

    assert grid.carbon is not None
    assert grid.price is not None
    assert (len(grid.carbon), len(grid.price), grid.pue) == (48, 48, 1.3)
    assert grid.carbon.start_s == grid.price.start_s
    assert (grid.carbon.values[0], grid.price.values[0]) == (110.0, 0.01)
    assert grid.carbon.at(grid.carbon.until_s) == 110.0


def yearly(folder: Path, zone: str, year: int) -> Path:
    """Write a carbon file of a zone with every hour of a year."""
    (folder / zone).mkdir()
    begin = datetime(year, 1, 1, tzinfo=UTC)
    hours = int((begin.replace(year=year + 1) - begin).total_seconds() // 3600)
    rows = [f"{begin + timedelta(hours=hour):%Y-%m-%dT%H:%MZ},{year}\n" for hour in range(hours)]
    (folder / zone / f"carbon_{year}.csv").write_text("ts,carbon_g_per_kwh\n" + "".join(rows))
    return folder


def test_zones_of_different_years_are_refused_until_one_is_chosen_that_all_have(tmp_path: Path) -> None:
    for zone, year in (("A", 2023), ("B", 2022)):
        yearly(tmp_path, zone, year)
    files = [zone_files(tmp_path, name) for name in ("A", "B")]

    with pytest.raises(BadUsage, match="--zone B: found series from 2022 on, expected them from 2023 on as those of A"):
        of_one_year(files, None)
    with pytest.raises(BadUsage, match="--zone A: found carbon from 2023-01-01 to 2024-01-01, expected all of 2022"):
        of_one_year(files, 2022)
    assert of_one_year(files[:1], None) == files[:1]


def test_a_year_cut_out_of_a_longer_series_goes_round_in_itself(tmp_path: Path) -> None:
    read = zone_files(yearly(tmp_path, "A", 2023), "A")
    assert read.carbon is not None
    longer = replace(
        read.carbon, start_s=datetime(2022, 12, 1, tzinfo=UTC).timestamp(), values=np.arange(8760.0 + 31 * 24),
        filled=np.zeros(8760 + 31 * 24, np.bool_),
    )  # fmt: skip

    [cut] = of_one_year([replace(read, carbon=longer)], 2023)

    carbon = cut.grid(1.0).carbon
    assert carbon is not None
    assert (datetime.fromtimestamp(carbon.start_s, UTC), len(carbon)) == (datetime(2023, 1, 1, tzinfo=UTC), 8760)
    assert (carbon.values[0], carbon.at(carbon.until_s)) == (31 * 24, 31 * 24)


def test_a_folder_of_zones_needs_a_name_and_one_of_files_none(tmp_path: Path) -> None:
    for name in ("A", "B"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "carbon.csv").write_text("ts,carbon_g_per_kwh\n2023-01-01,90\n")
    (tmp_path / "notes").mkdir()

    assert zones_of(tmp_path) == ["A", "B"]
    assert zone_files(tmp_path / "A").zone == "A"
    assert zone_files(tmp_path, "B").zone == "B"
    with pytest.raises(BadUsage, match="the zones A, B, expected one; choose"):
        zone_files(tmp_path)
    with pytest.raises(BadUsage, match="--zone C: found the zones A, B"):
        zone_files(tmp_path, "C")
    with pytest.raises(BadUsage, match="no such folder"):
        zone_files(tmp_path / "absent")
    with pytest.raises(BadUsage, match="zones none"):
        zone_files(tmp_path / "notes")


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("carbon", "", "found the columns ''"),
        ("carbon", "ts,carbon_g_per_kwh\n2023-01-01,\n", "without a value"),
        ("carbon", "when,what\n2023-01-01,5\n", "expected ts,carbon_g_per_kwh, or those"),
        ("carbon", "ts,carbon_g_per_kwh\nyesterday,90\n", "line 2: found 'yesterday', expected a moment"),
        (
            "carbon",
            "ts,carbon_g_per_kwh\n2023-01-01,90\n2023-01-01T01:00,much\n",
            "line 3: found 'much', expected a number; leave the field empty for an unknown hour",
        ),
        ("carbon", "ts,carbon_g_per_kwh\n2023-01-01,nan\n", "found 'nan', expected a number; leave the field empty"),
        ("carbon", "ts,carbon_g_per_kwh\n2023-01-01,inf\n", "found 'inf', which is not within 0 to 2500 g/kWh"),
        (
            "carbon",
            "ts;carbon_g_per_kwh\n2023-01-01;90\n",
            "found 'ts;carbon_g_per_kwh' in one column, expected columns separated by commas",
        ),
        ("carbon", "ts,carbon_g_per_kwh\n2023-01-01,450000\n", "is it in another unit"),
        ("carbon", "ts,carbon_g_per_kwh\n2023-01-01,90,1\n", "is not CSV text: found more fields"),
        ("carbon", "ts,carbon_g_per_kwh\n2023-01-01,90\n2023-03-01,90\n", "a gap of 1415 hours"),
        ("carbon", "ts,carbon_g_per_kwh\n1980-01-01,90\n2123-03-01,90\n", "a century"),
        (
            "carbon",
            "ts,carbon_g_per_kwh\n0001-01-01T00:00+05:00,90\n",
            "line 2: found '0001-01-01T00:00+05:00', expected a moment",
        ),
        (
            "carbon",
            "ts,carbon_g_per_kwh\n0001-01-01T05:00Z,90\n",
            "line 2: found '0001-01-01T05:00Z', expected a year",
        ),
        ("price", "Datetime (UTC),Price (EUR/MWh)\n2023-01-01,80\n", "Price (USD/MWh)"),
    ],
)
def test_odd_files_are_refused_by_their_line(tmp_path: Path, kind: str, text: str, said: str) -> None:
    with pytest.raises(BadUsage) as refused:
        zone_files(zone(tmp_path, **{kind: text}))
    assert said in str(refused.value)


TEXT = "ts,carbon_g_per_kwh\n2023-01-01,90\n"


def test_a_file_that_is_no_text_or_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = zone(tmp_path, carbon=TEXT)
    (folder / "Z" / "price.csv").write_bytes(b"ts,carbon_g_per_kwh\n\xff\xfe\x00\n")
    with pytest.raises(BadUsage, match="not CSV text"):
        zone_files(folder)
    monkeypatch.setattr(grid_columns, "MOST_BYTES", 10)
    with pytest.raises(BadUsage, match=f"found {len(TEXT)} bytes, expected at most 10"):
        zone_files(folder)


HOUR = 3600.0


def test_an_hour_that_is_missing_is_that_of_the_day_before_else_that_before() -> None:
    hours = np.array([h for h in range(60) if h not in (2, 30, 54)])

    series, repairs = hourly(hours * HOUR, hours.astype(float), "g/kWh")

    assert [series.values[hour] for hour in (2, 30, 54)] == [1.0, 6.0, 6.0]
    assert np.flatnonzero(series.filled).tolist() == [2, 30, 54]
    assert (repairs.filled, repairs.merged, repairs.unsorted) == (3, 0, 0)


@given(st.permutations(range(30)))
def test_the_order_of_readings_changes_nothing_but_its_count(order: list[int]) -> None:
    moments, values = np.arange(30) * HOUR, np.arange(30.0) ** 2

    series, repairs = hourly(moments[order], values[order], "g/kWh")

    assert series.values.tolist() == values.tolist()
    assert (repairs.unsorted == 0) == (list(order) == sorted(order))


@given(
    hours=st.lists(st.integers(0, 100), min_size=2, max_size=60, unique=True),
    cut=st.integers(1, 100),
    seed=st.integers(0, 99),
)
def test_what_is_filled_never_depends_on_what_comes_later(hours: list[int], cut: int, seed: int) -> None:
    moments, values = np.array(sorted(hours)) * HOUR, np.random.default_rng(seed).uniform(0, 500, len(hours))
    kept = moments < moments[0] + cut * HOUR

    whole, _ = hourly(moments, values, "g/kWh")
    early, _ = hourly(moments[kept], values[kept], "g/kWh")

    assert early.values.tolist() == whole.values[: len(early)].tolist()


@pytest.mark.parametrize(
    ("moments", "values", "said"),
    [
        ([], [], "without a value"),
        ([0.0], [np.nan], "without a value"),
        ([0.0, (LONGEST_GAP_H + 2) * HOUR], [1.0, 1.0], "a gap of 169 hours from 1970-01-01T01"),
        ([0.0, 4e9], [1.0, 1.0], "a century"),
    ],
)
def test_what_is_not_hours_is_refused(moments: list[float], values: list[float], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        hourly(np.array(moments), np.array(values), "g/kWh")
