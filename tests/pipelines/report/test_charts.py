"""The charts of a report: each says what, of how many and in which unit, in colours that everybody can tell apart."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from features.vocabulary import Status
from pipelines.report.claims import LEAST_AMOUNT, request_and_use
from pipelines.report.durations import LEAST_S, durations
from pipelines.report.machines import utilisation
from pipelines.report.models import importances
from pipelines.report.overview import STATUSES, by_status
from pipelines.report.panels import LINE_CHARACTERS, TITLE_CHARACTERS, counted
from pipelines.report.parts import Figure, Section
from pipelines.report.report import Order, sections
from tests.pipelines.report.tiny import figures, points_of, spec_of
from tests.pipelines.statistics.lakes import make_lake, ran

OKABE_ITO = {"#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"}
GREYS = {"#d9d9d9", "#cccccc", "#444444"}
MOST_POINTS = 500
"""A few hundred: what stays quick at any size of trace."""


def of_models() -> dict[str, Figure]:
    """Return the figures that no tiny lake gives, drawn of rows made up."""
    rows = pl.DataFrame({"feature": ["a", "b"], "mean": [0.2, 0.1], "std": [0.01, 0.02], "repeats": [5, 5]})
    chart = importances(rows, "runtime.toy.ctr", "pinball, ln s", "99 later jobs")
    return {"importance": Figure(name="importance", chart=chart, rows=rows)}


@pytest.fixture
def drawn(made: list[Section]) -> dict[str, dict[str, Any]]:
    """Return every chart of a report as Vega-Lite, by name."""
    return {name: spec_of(figure) for name, figure in (figures(made) | of_models()).items()}


def parts(node: object, key: str) -> Iterator[Any]:
    if isinstance(node, dict):
        if key in node:
            yield node[key]
        for name, value in node.items():
            if name != "datasets":
                yield from parts(value, key)
    elif isinstance(node, list):
        for value in node:
            yield from parts(value, key)


def test_a_report_draws_every_subject(drawn: dict[str, dict[str, Any]]) -> None:
    subjects = {name.partition("-")[0] for name in drawn}

    assert {
        "status_jobs", "status_gpu_hours", "arrivals_by_hour", "arrivals_by_weekday", "sizes_jobs_share",
        "slack_share", "request_and_use", "run_time", "queueing_delay", "busy", "importance",
    } <= subjects  # fmt: skip


def test_every_chart_has_a_title_n_and_named_axes(drawn: dict[str, dict[str, Any]]) -> None:
    for name, spec in drawn.items():
        assert spec["title"]["text"], name
        assert re.search(r"\bn (=|\()", " ".join(spec["title"]["subtitle"])), name
        quantitative = [
            channel
            for encoding in parts(spec, "encoding")
            for at, channel in encoding.items()
            if at in ("x", "y") and channel["type"] == "quantitative"
        ]
        titled = [channel for channel in quantitative if channel.get("title")]
        assert titled or not quantitative, f"{name}: an axis of numbers without what they are"


def test_titles_are_broken_where_a_phone_ends(drawn: dict[str, dict[str, Any]]) -> None:
    for name, spec in drawn.items():
        assert max(map(len, spec["title"]["text"])) <= TITLE_CHARACTERS, name
        assert max(map(len, spec["title"]["subtitle"])) <= LINE_CHARACTERS, name


def test_colours_can_be_told_apart_by_everybody(drawn: dict[str, dict[str, Any]]) -> None:
    text = str({name: {k: v for k, v in spec.items() if k != "datasets"} for name, spec in drawn.items()})
    schemes = set(re.findall(r"'scheme': '(\w+)'", text))

    assert set(re.findall(r"#[0-9A-Fa-f]{6}", text)) <= OKABE_ITO | GREYS
    assert schemes == {"cividis"}


def test_charts_hold_a_few_hundred_points_at_most(drawn: dict[str, dict[str, Any]]) -> None:
    assert max(points_of(spec) for spec in drawn.values()) <= MOST_POINTS


def test_charts_are_as_wide_as_their_place(drawn: dict[str, dict[str, Any]]) -> None:
    assert {spec["width"] for spec in drawn.values()} == {"container"}
    assert all(spec["config"]["legend"]["orient"] == "bottom" for spec in drawn.values())


def test_a_trace_has_one_colour_in_every_chart(drawn: dict[str, dict[str, Any]]) -> None:
    found: dict[str, set[str]] = {}
    for spec in drawn.values():
        for scale in parts(spec, "scale"):
            if isinstance(scale, dict) and set(scale.get("domain", ())) & {"toy", "bare"} and scale.get("range"):
                for trace, colour in zip(scale["domain"], scale["range"], strict=True):
                    if isinstance(colour, str):
                        found.setdefault(trace, set()).add(colour)

    assert set(found) == {"toy", "bare"}
    assert all(len(colours) == 1 for colours in found.values())
    assert found["toy"] != found["bare"]


def test_amounts_and_waits_below_the_least_are_drawn_there_and_it_is_said() -> None:
    points = pl.DataFrame(
        {
            "resource": ["gpus"] * 2,
            "use": ["mean"] * 2,
            "series": ["request", "used"],
            "tasks": [9, 9],
            "probability": [0.5, 0.5],
            "value": [1.0, 0.0],
        }
    )
    spec = request_and_use(points, "toy").to_dict()

    [rows] = spec["datasets"].values()
    assert [row["value"] for row in rows] == [1.0, LEAST_AMOUNT]
    assert f"below {LEAST_AMOUNT:g}" in " ".join(spec["title"]["subtitle"])


def percentiles(trace: str, jobs: int, seconds: float) -> dict[str, object]:
    names = ("min_s", *(f"p{p}_s" for p in (5, 10, 25, 50, 75, 90, 95, 99)), "max_s")
    return {"trace": trace, "jobs": jobs, "size": "1"} | {name: seconds * i for i, name in enumerate(names)}


def test_a_distribution_goes_through_the_percentiles_of_its_statistic() -> None:
    spec = durations(pl.DataFrame([percentiles("toy", 7, 100.0)]), "Run times", ["toy"]).to_dict()

    [rows] = spec["datasets"].values()
    found = {row["probability"]: row["seconds"] for row in rows}
    assert found[0.5] == 400.0
    assert found[1.0] == 900.0
    assert found[0.0] == LEAST_S
    assert counted([("toy", 7)], "jobs") in spec["title"]["subtitle"]


def test_a_status_that_is_not_told_is_shown_as_that() -> None:
    rows = pl.DataFrame({"trace": ["t", "t"], "status": ["failed", None], "jobs": [1, 3], "share": [0.25, 0.75]})

    spec = by_status(rows, "share", "jobs", "jobs").to_dict()

    [data] = spec["datasets"].values()
    assert {row["status"]: row["share"] for row in data} == {"failed": 0.25, "unknown": 0.75}
    assert set(spec["encoding"]["color"]["scale"]["domain"]) <= set(STATUSES)


def test_every_status_has_a_colour() -> None:
    assert set(STATUSES) == {*Status, "unknown"}
    assert len(set(STATUSES.values())) == len(STATUSES)


@pytest.mark.parametrize(("busiest", "most"), [(0.25, 0.3), (0.0, 0.1), (1.0, 1.0)])
def test_a_heat_map_goes_up_to_the_busiest_hour_and_says_so(busiest: float, most: float) -> None:
    rows = pl.DataFrame({"weekday": [1, 2], "hour": [0, 1], "machine_hours": [5, 5], "mean_frac": [0.0, busiest]})

    spec = utilisation(rows, "gpu", "toy", "UTC").to_dict()

    assert spec["encoding"]["color"]["scale"]["domain"] == [0, most]
    assert f"colours to {most:.0%} busy" in " ".join(spec["title"]["subtitle"])


def test_a_lake_of_a_trace_that_tells_little_is_drawn_too(tmp_path: Path) -> None:
    jobs = [ran(at, 30.0) for at in range(5)]
    with make_lake(tmp_path, {"jobs": jobs}, trace="bare") as lake:
        made = sections(lake, ("bare",), Order(title="t"))

    assert "run_time" in figures(made)
    assert not [name for name in figures(made) if name.startswith(("slack", "busy", "queueing"))]
