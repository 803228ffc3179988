"""The section on power and temperature of GPUs: present only with measured hours, honest about what is missing."""

import math
from datetime import timedelta
from pathlib import Path

import pytest

from pipelines.lake.lake import Lake
from pipelines.report.machines import environment
from pipelines.report.parts import Note, Traces
from pipelines.report.report import Order, report
from tests.pipelines.report.tiny import tables, tiny_lake
from tests.pipelines.statistics.lakes import T0, Rows, make_lake, ran

DAYS = 3


def measured_lake(folder: Path, **fields: object) -> Lake:
    """Return a lake with four GPUs on two machines, busy by day; one has an error."""
    gpus: Rows = []
    busy: Rows = []
    for hour in range(24 * DAYS):
        load = 0.5 - 0.4 * math.cos(hour / 24 * 2 * math.pi)
        for number in range(4):
            where = {"trace": "live", "cluster": "c", "machine": f"n{number // 2}", "ts": T0 + timedelta(hours=hour)}
            watts = 20.0 + 250 * load * (1 + number / 10)
            gpu = {"device": str(number % 2), "gpu_type": ("Tesla T4", "NVIDIA A100-SXM4-80GB")[number // 2]}
            drawn = {"power_w": watts, "power_max_w": watts + 15, "energy_j": watts * 3600, "coverage_frac": 1.0}
            heat = {
                "temp_c": 30.0 + watts / 10,
                "temp_max_c": 35.0 + watts / 10,
                "xid_changes": int(hour == number == 3),
            }
            gpus.append(where | gpu | drawn | heat | fields)
            if number % 2:
                busy.append(where | {"gpu_frac": load})
    tables = {"jobs": [ran(0, 60.0)], "environment": gpus, "machine_usage": busy}
    return make_lake(folder, tables, trace="live", zone="Europe/Berlin")


def test_without_measured_hours_there_is_no_section(tmp_path: Path) -> None:
    assert environment(Traces(lake=tiny_lake(tmp_path), names=("toy", "bare"))) is None


@pytest.mark.slow
def test_the_section_has_tables_of_power_and_names_what_other_traces_lack(tmp_path: Path) -> None:
    tiny_lake(tmp_path)
    section = environment(Traces(lake=measured_lake(tmp_path), names=("live", "bare")))
    assert section is not None
    found = tables([section])
    assert found["gpu_environment"].rows["gpus"].to_list() == [2, 2]
    assert found["gpu_power_by_use"].rows["r2"].to_list() == [1.0, 1.0]
    assert found["gpu_errors"].rows.select("machine", "xid_hours", "xid_gpus").rows() == [("n1", 1, 1)]
    notes = [part.text for part in section.parts if isinstance(part, Note)]
    assert any("bare" in note and "not available" in note for note in notes)


def test_gpus_without_power_have_a_table(tmp_path: Path) -> None:
    lake = measured_lake(tmp_path, power_w=None, power_max_w=None, energy_j=None, xid_changes=None)
    section = environment(Traces(lake=lake, names=("live",)))
    assert section is not None
    assert tables([section])["gpu_environment"].rows["max_c"].null_count() == 0


@pytest.mark.slow
def test_the_page_has_the_section(tmp_path: Path) -> None:
    html = report(measured_lake(tmp_path), ("live",), Order(title="Live"))
    assert 'id="environment"' in html
    assert "Power by use" in html
