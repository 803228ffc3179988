"""What a screen shows of a replay: hours, intervals beside their figures, nothing where nothing is known."""

from pipelines.studies.replay.rows import PAIRED
from pipelines.studies.replay.tables import paired, rendered
from pipelines.studies.study import Row

FIGURES = ("jct_mean_s", "delay_mean_s", "fifo_jct_ratio", "gain_kept", "oracle_jct_ratio", "predicted_jct_ratio")


def row(**figures: object) -> Row:
    known: Row = {"reading": "r", "vc": "all", "gang_gpus": "all", "capacity_gpus": 8, "offered_load": 0.5}
    known |= {"order": "sjf", "sizes": "predicted", "jobs": 7, "delay_p99_s": 1800.0, "preemptions": 0}
    for name in (
        "jct_mean_s",
        "delay_mean_s",
        "fifo_jct_ratio",
        "gain_kept",
        "oracle_jct_ratio",
        "predicted_jct_ratio",
        *(f"less_{other}_s" for other in PAIRED),
    ):
        known |= {name: None, f"{name}_low": None, f"{name}_high": None}
    return known | figures


def test_a_figure_stands_with_its_interval_in_hours() -> None:
    (found,) = rendered([row(jct_mean_s=7200.0, jct_mean_s_low=3600.0, jct_mean_s_high=9000.0)])

    assert found["jct_mean_h"] == "2.00 [1.00, 2.50]"
    assert found["delay_p99_h"] == 0.5


def test_a_figure_without_an_interval_stands_alone_and_what_is_not_known_is_empty() -> None:
    (found,) = rendered([row(gain_kept=-17.7)])

    assert (found["gain_kept"], found["fifo_jct_ratio"]) == ("-17.70", None)


def test_a_difference_stands_under_the_order_it_is_from_if_that_was_replayed() -> None:
    (found,) = paired([row(less_las_s=-3600.0, less_las_s_low=-7200.0, less_las_s_high=-360.0)])

    assert found["less_las_h"] == "-1.00 [-2.00, -0.10]"
    assert "less_srtf_h" not in found
    assert paired([row()]) == []


def test_parts_and_classes_stand_there_if_there_are_any() -> None:
    assert "gang_gpus" not in rendered([row()])[0]
    assert [each["gang_gpus"] for each in rendered([row(), row(gang_gpus=">8")])] == ["all", ">8"]
    assert "vc" not in rendered([row(), row(gang_gpus=">8")])[0]
