"""Measured tables: tidy frames as the files have them, models of them, and a clear word about what cannot be meant."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from pipelines.errors import SourceError
from pipelines.studies.energy import measured
from pipelines.studies.energy.measured_files import MOST_BYTES
from tests.pipelines.studies.energy.made_up import APPLICATIONS, MHZ, WORKLOADS

PERFORMANCE, POWER = "gpu_frequency/dataset_performance.csv", "gpu_frequency/dataset_power.csv"
STEPS, GAVEL = "throughput/step_time_by_gpu_count.csv", "throughput/gavel_throughputs.json"
LIMITS = "gpu_power_limit/summary_power_a40.csv"


def test_frequencies_stand_one_to_a_row(made_up: Path) -> None:
    table = measured.frequency_table(made_up)

    assert table.columns == ["workload", "frequency_mhz", "perf", "watts"]
    assert table["workload"].unique(maintain_order=True).to_list() == list(WORKLOADS)
    assert table.filter(workload="even")["frequency_mhz"].to_list() == list(MHZ)
    assert table.filter(workload="keen", frequency_mhz=1000.0)["watts"].item() == pytest.approx(90.0)


def test_models_are_those_the_tables_were_made_by(made_up: Path) -> None:
    models = measured.frequency_models(made_up)

    assert {name: (round(model.a, 3), round(model.p0_w, 2)) for name, model in models.items()} == WORKLOADS


def test_rows_whose_synchronising_is_longer_than_the_step_are_marked_and_left_out(made_up: Path) -> None:
    steps = measured.step_times(made_up)

    assert steps.filter(pl.col("suspect"))["application"].to_list() == ["odd"]
    models = measured.scaling_models(made_up)
    assert set(models) == {(name, "dgx-ext") for name in APPLICATIONS}
    assert {model.gpus_per_node for model in models.values()} == {8}


def test_single_jobs_of_gavel_without_k80(made_up: Path) -> None:
    speeds = measured.gavel_throughputs(made_up)

    assert speeds.columns == ["model", "batch", "gpus", "gpu_type", "consolidated", "steps_per_s"]
    assert set(speeds["gpu_type"]) == {"p100", "v100"}
    assert speeds.filter(model="A3C")["batch"].null_count() == 4
    assert speeds.filter(model="ResNet-18", gpus=4, gpu_type="v100", consolidated=True)["steps_per_s"].item() == 40.0


def test_power_limits_by_gpu_type(made_up: Path) -> None:
    assert measured.power_limits(made_up).height == 3 * len(measured.GPU_TYPES)
    of_v100 = measured.power_limits(made_up).filter(gpu_type="v100")
    assert of_v100["limit_w"].sort().to_list() == [100.0, 150.0, 200.0]
    assert set(of_v100.select(measured.SETTING).rows()) == {("v100", "imagenet", "resnet50", 256, "adam")}


def replaced(file: str, old: str, new: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        text = (folder / file).read_text()
        assert old in text
        (folder / file).write_text(text.replace(old, new, 1))

    return spoil


def removed(file: str) -> Callable[[Path], None]:
    return lambda folder: (folder / file).unlink()


def grown(file: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        with (folder / file).open("r+b") as grows:
            grows.truncate(MOST_BYTES + 1)

    return spoil


READERS = {
    PERFORMANCE: measured.frequency_table,
    POWER: measured.frequency_table,
    STEPS: measured.step_times,
    LIMITS: measured.power_limits,
    GAVEL: measured.gavel_throughputs,
}


@pytest.mark.parametrize(
    ("file", "spoil", "said"),
    [
        *((file, removed(file), "lacks") for file in READERS),
        *((file, grown(file), "bytes, expected at most") for file in READERS),
        (POWER, replaced(POWER, "even,65", "even,-65"), "row 2: 800 is '-65.360000'.*above zero"),
        (POWER, replaced(POWER, "even,65.360000", "even,NaN"), "row 2: 800 is 'NaN'"),
        (POWER, replaced(POWER, "even,65.360000", "even,"), "row 2: 800 is 'None'"),
        (POWER, replaced(POWER, "bound", "elsewhere"), "differ in .*'bound'"),
        (POWER, replaced(POWER, "1000", "1010"), "differ in .*1000"),
        (POWER, replaced(POWER, "bound", "even"), "come twice: even"),
        (POWER, replaced(POWER, "900", "800.0"), "come twice: 800"),
        (PERFORMANCE, replaced(PERFORMANCE, "frequency(MHz)", "f"), r"lacks the column frequency\(MHz\)"),
        (PERFORMANCE, replaced(PERFORMANCE, "900", "nine"), "frequencies as the heads"),
        (STEPS, replaced(STEPS, "sync_time_s", "sync"), "lacks the columns sync_time_s; found application"),
        (STEPS, replaced(STEPS, "cifar10,", ","), "row 2: application is .*expected a name"),
        (STEPS, replaced(STEPS, "dgx-ext,1,1", "dgx-ext,1,0"), "num_gpus is '0'"),
        (STEPS, replaced(STEPS, "dgx-ext,1,1", "dgx-ext,1,inf"), "num_gpus is 'inf'"),
        (LIMITS, replaced(LIMITS, "100,", "-100,"), "power_limit is '-100'"),
        (GAVEL, replaced(GAVEL, '"p100"', '"q100"'), "not in its format: KeyError"),
        (GAVEL, replaced(GAVEL, "7.0", "NaN"), "no speed above zero"),
        (GAVEL, replaced(GAVEL, "A3C", "A3C (batch)"), "names a job"),
        (
            GAVEL,
            replaced(
                GAVEL,
                "{",
                "",
            ),
            "not in its format",
        ),
    ],
)
def test_files_that_cannot_be_meant_are_told(
    made_up: Path, file: str, spoil: Callable[[Path], None], said: str
) -> None:
    spoil(made_up)

    with pytest.raises(SourceError, match=said):
        READERS[file](made_up)


def test_a_folder_that_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no folder of energy data at .*--energy or TAUT_ENERGY"):
        measured.frequency_table(tmp_path / "nowhere")


def test_the_published_tables_are_whole(energy: Path) -> None:
    assert measured.frequency_table(energy).height == 33 * 13
    assert measured.step_times(energy)["suspect"].sum() == 61
    assert len(measured.scaling_models(energy)) == 36
    assert set(measured.power_limits(energy)["gpu_type"]) == set(measured.GPU_TYPES)
    assert measured.gavel_throughputs(energy).filter(gpu_type="v100", consolidated=True).height == 83
