"""Measured tables: as the files have them, and clear errors about invalid ones."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.errors import SourceError
from pipelines.studies.energy import by_frequency, gavel_throughputs
from tests.pipelines.studies.made_up import MHZ, WORKLOADS

PERFORMANCE, POWER = "gpu_frequency/dataset_performance.csv", "gpu_frequency/dataset_power.csv"
GAVEL = "throughput/gavel_throughputs.json"
READERS = {PERFORMANCE: by_frequency, POWER: by_frequency, GAVEL: gavel_throughputs}


def test_tables_by_frequency(made_up: Path) -> None:
    table = by_frequency(made_up)

    assert (table.names, table.mhz.tolist()) == (WORKLOADS, list(MHZ))
    assert table.perf.shape == table.watts.shape == (len(WORKLOADS), len(MHZ))
    assert table.perf[:, -1].tolist() == [1.0] * len(WORKLOADS)


def test_single_jobs_of_gavel_without_k80(made_up: Path) -> None:
    speeds = gavel_throughputs(made_up)

    assert speeds.columns == ["model", "batch", "gpus", "gpu_type", "consolidated", "steps_per_s"]
    assert set(speeds["gpu_type"]) == {"p100", "v100"}
    assert speeds.filter(model="A3C")["batch"].null_count() == 4
    assert speeds.filter(model="ResNet-18", gpus=4, gpu_type="v100", consolidated=True)["steps_per_s"].item() == 40.0


def replaced(old: str, new: str) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return spoil


@pytest.mark.parametrize(
    ("file", "spoil", "said"),
    [
        *((file, Path.unlink, "lacks") for file in READERS),
        (POWER, replaced("FDTD,", "FDTD,-"), "expected frequencies that ascend, and finite numbers above zero"),
        (POWER, replaced("FDTD,", "FDTD,NaN,"), "not in its format"),
        (POWER, replaced("LSTM", "elsewhere"), "differ"),
        (POWER, replaced("1000", "1010"), "differ"),
        (POWER, replaced("900", "800.0"), "frequencies that ascend"),
        (PERFORMANCE, replaced("frequency(MHz)", "f"), "not in its format"),
        (PERFORMANCE, replaced("900", "nine"), "not in its format"),
        (GAVEL, replaced('"p100"', '"q100"'), "not in its format: KeyError"),
        (GAVEL, replaced("7.0", "NaN"), "expected a speed above zero"),
        (GAVEL, replaced("A3C", "A3C (batch)"), "names a job"),
        (GAVEL, replaced("{", ""), "not in its format"),
    ],
)
def test_invalid_files_are_refused(made_up: Path, file: str, spoil: Callable[[Path], None], said: str) -> None:
    spoil(made_up / file)

    with pytest.raises(SourceError, match=said):
        READERS[file](made_up)


def test_a_folder_that_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no folder of energy data at .*--energy or TAUT_ENERGY"):
        by_frequency(tmp_path / "nowhere")


def test_the_published_tables_are_whole(energy: Path) -> None:
    assert by_frequency(energy).perf.shape == (33, 13)
    assert gavel_throughputs(energy).filter(gpu_type="v100", consolidated=True).height == 83
