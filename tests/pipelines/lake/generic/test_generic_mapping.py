"""Mapping files: every fault is reported with its place and cure before any row is read."""

from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.connect.names import normalised
from pipelines.errors import MappingError
from pipelines.lake.generic.conversions import SLURM_STATES, TEXT_SLOT, Conversion, time_value
from pipelines.lake.generic.kinds import CORES, DURATION, GPUS, MEMORY, RATE, STATUS, TEXT
from pipelines.lake.generic.mapping import read_mapping
from pipelines.lake.generic.opening import opened_source
from pipelines.lake.sources.source import Source
from tests.pipelines.connect.test_names import NAMES

LEAST = '[jobs]\nfile = "f"\n[jobs.columns]\njob_id = "a"\nsubmit_ts = "b"\n'


def opened(place: Path, text: str) -> Source:
    (place / "m.toml").write_text(text)
    return opened_source(place / "m.toml", place).source


def test_the_least_mapping_is_enough(tmp_path: Path) -> None:
    source = opened(tmp_path, LEAST)

    [table] = source.tables
    assert (table.name, table.stems) == ("job", ("f",))
    assert [column.name for column in table.columns] == ["job_id", "submit_ts"]
    assert set(source.outputs) == {"jobs"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "jobs: missing"),
        ("[", "no TOML"),
        (".".join("a" * 20_000) + " = 1", "a key of more than 10 dots"),
        ("[" + " . ".join(["'a'", '"b c"'] * 6) + "]", "a key of more than 10 dots"),
        ("x = {" + ".".join("a" * 12) + " = 1}", "a key of more than 10 dots"),
        ("# " + "x" * (1 << 16), "larger than 65536 bytes"),
        (LEAST + f'user = "{".".join("a" * 30)}"\n[x]', "x: no such field"),
        ('[jobs.columns]\njob_id = "a"\n', "lacks submit_ts"),
        (LEAST + 'colour = "c"\n', "colour is no column of jobs; expected one of job_id, role"),
        (LEAST + "user = {}\n", "no origin; expected one of column, value, derive"),
        (LEAST + 'user = { column = "a", value = "b" }\n', "column and value"),
        (LEAST + 'user = { column = "a", speed = 1 }\n', "speed: no such field"),
        (LEAST + "user = 7\n", "expected an object with named fields"),
        (LEAST + 'req_mem_gib = { column = "c", unit = "GBs" }\n', "the unit 'GBs'; expected one of bytes, KiB"),
        (LEAST + 'user = { column = "c", unit = "GiB" }\n', "expected none for this column"),
        (LEAST + 'req_gpus = { column = "c", as = "slurm_state" }\n', "expected one of slurm_gpus"),
        (LEAST + 'req_gpus = { column = "c", as = "slurm_gpus", unit = "gpus" }\n', "both unit and as"),
        (LEAST + 'user = { column = "c", as = "decimal_comma" }\n', "expected one of slurm_gpu_type, name_pattern"),
        (
            'cluster = "a"\n' + LEAST.replace('"f"', '"{cluster}.csv"'),
            "both cluster = 'a' and {cluster} in a file's name",
        ),
        (LEAST.replace('"f"', '"{cluster}/{cluster}.csv"'), "{cluster} twice"),
        (
            LEAST.replace('"f"', '"{cluster}.csv"')
            + '[machines]\nfile = "nodes.csv"\n[machines.columns]\nmachine = "m"\ngpus = "g"\n',
            "[machines] has the file 'nodes.csv'; expected {cluster} in its name, too",
        ),
        (LEAST + 'end_ts = { column = "c", time = "%Q" }\n', "time = '%Q'"),
        (LEAST + 'end_ts = { column = "c", zone = "Mars/Olympus" }\n', "the time zone 'Mars/Olympus'"),
        (LEAST + 'run_s = { column = "c", time = "epoch_s" }\n', "this column is no time"),
        (
            LEAST + 'status = { column = "c", values = { a = "done" } }\n',
            "lead to 'done'; expected one of compl",
        ),
        (LEAST + 'end_ts = { derive = "start_ts * 2" }\n', "expected one of start_ts + run_s"),
        (LEAST + 'end_ts = { derive = "start_ts + run_s" }\n', "which is not mapped"),
        (
            LEAST
            + 'start_ts = "s"\nend_ts = { derive = "start_ts + run_s" }\nrun_s = { derive = "end_ts - start_ts" }\n',
            "end_ts and run_s are derived from each other",
        ),
        (LEAST + 'req_cpu_cores = { column = "c", per = "nodes" }\n', "'run_s' or 'instances'"),
        (LEAST + 'req_cpu_cores = { column = "c", per = "run_s" }\n', "made of run_s, which is not mapped"),
        (
            LEAST + '[usage.columns]\nused_gpus = { column = "u", of = "request" }\n',
            "with unit = 'percent', without per",
        ),
        (
            LEAST + '[usage.columns]\nused_gpus = { column = "u", unit = "percent", of = "request" }\n',
            "made of req_gpus, which is not mapped",
        ),
        (LEAST + '[usage.columns]\ninstances_measured = "n"\n', "names nothing measured"),
        (LEAST + '[machines.columns]\nmachine = "n"\n', "lacks gpus"),
        (LEAST.replace('"f"', '"../f"'), "expected a path below the folder"),
        (LEAST.replace('"f"', '"/f"'), "expected a path below the folder"),
        (LEAST.replace('file = "f"\n', ""), "names no file"),
        (LEAST.replace('file = "f"', 'file = "f"\nformat = "sqlite"'), "format: expected 'csv' or 'parquet'"),
        (LEAST.replace('file = "f"', 'file = "f"\nencoding = "zip"'), "encoding: expected"),
        (LEAST.replace('file = "f"', 'file = "f"\ndelimiter = "::"'), "delimiter: expected text of at most 1"),
        ('cluster = "../x"\n' + LEAST, "cluster: expected text that matches"),
        ("#" * 2_000_000, "larger than"),
    ],
)
def test_a_mapping_that_cannot_be_meant_is_told_with_place_and_cure(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(MappingError) as caught:
        opened(tmp_path, text)

    assert said in str(caught.value)
    assert len(str(caught.value)) < 1500


def test_an_absent_mapping_is_told(tmp_path: Path) -> None:
    with pytest.raises(MappingError, match="own-cluster"):
        read_mapping(tmp_path / "none.toml")


def value_of(conversion: Conversion | str, text: str) -> object:
    """Return what a conversion makes of a text; times as text."""
    pick, value = (TEXT_SLOT, conversion) if isinstance(conversion, str) else (conversion.pick, conversion.value)
    picked = f"SELECT {pick.replace(TEXT_SLOT, 'x')} AS t FROM (SELECT ?::VARCHAR AS x)"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        made = value.replace(TEXT_SLOT, "t")
        as_shown = f"({made})::VARCHAR" if isinstance(conversion, str) else made
        [[found]] = connection.execute(f"SELECT {as_shown} FROM ({picked})", [text]).fetchall()
    return found


@pytest.mark.parametrize(
    ("conversion", "text", "value"),
    [
        (DURATION.named["slurm_time"], "1-02:03:04", 93784),
        (DURATION.named["slurm_time"], "02:03:04", 7384),
        (DURATION.named["slurm_time"], "03:04.5", 184.5),
        (DURATION.named["slurm_time"], "1-02:03", None),
        (DURATION.named["slurm_time"], "UNLIMITED", None),
        (DURATION.named["slurm_minutes"], "60", 3600),
        (DURATION.named["slurm_minutes"], "1-00:00:00", 86400),
        (DURATION.named["slurm_minutes"], "UNLIMITED", None),
        (MEMORY.named["slurm_memory"], "4G", 4),
        (MEMORY.named["slurm_memory"], "4096M", 4),
        (MEMORY.named["slurm_memory"], "1048576K", 1),
        (MEMORY.named["slurm_memory"], "512", 0.5),
        (MEMORY.named["slurm_memory"], "cpu=4,mem=2T,gres/gpu=1", 2048),
        (MEMORY.named["slurm_memory"], "4Gc", None),
        (MEMORY.named["slurm_memory"], "4Gn", None),
        (GPUS.named["slurm_gpus"], "billing=8,gres/gpu:a100=4,gres/gpu=4", 4),
        (GPUS.named["slurm_gpus"], "gres/gpu:a100=4,gres/gpu:t4=1", 5),
        (GPUS.named["slurm_gpus"], "gpu:a100:2(S:0-1)", 2),
        (GPUS.named["slurm_gpus"], "gpu:3", 3),
        (GPUS.named["slurm_gpus"], "cpu=4", 0),
        (GPUS.named["slurm_gpus"], "gpu:x", None),
        (GPUS.named["slurm_gpus"], "gpu:3090:4", 4),
        (GPUS.named["slurm_gpus"], "gres/gpu:2080=4,gres/gpu:3090=2,mem=4G", 6),
        (GPUS.named["slurm_gpus"], "gpu:a100:2(IDX:0,3),nvme:1", 2),
        (GPUS.named["slurm_gpus"], "GPU:4", 4),
        (GPUS.named["slurm_gpus"], "cpu=4,gres/gpumem=8G", 0),
        (GPUS.named["slurm_gpus"], "(null)", 0),
        *((GPUS.named["slurm_gpus"], text, None) for text in ("gpu:x:1234567", "4", "four", "gpu", "a=4,gpu:a:b", ",")),
        (TEXT.named["slurm_gpu_type"], "gpu:3090:4", "3090"),
        (TEXT.named["slurm_gpu_type"], "cpu=4,gres/gpu:2080=4", "2080"),
        (TEXT.named["slurm_gpu_type"], "billing=8,gres/gpu=4,gres/gpu:a100=4", "a100"),
        (TEXT.named["slurm_gpu_type"], "gpu:1g.5gb:2", "1g.5gb"),
        (TEXT.named["slurm_gpu_type"], "gpu:4", ""),
        (CORES.named["slurm_cpus"], "billing=8,cpu=4", 4),
        (CORES.named["slurm_cpus"], "7", 7),
        *((CORES.named["kubernetes_quantity"], *each) for each in (("500m", 0.5), ("2", 2), ("1.5", 1.5), (".5", 0.5))),
        *((CORES.named["kubernetes_quantity"], *each) for each in (("1e3", 1000), ("2k", 2000), ("250000000n", 0.25))),
        *((CORES.named["kubernetes_quantity"], text, None) for text in ("500 m", "m", "1.5.2", "4GiB", "inf", "1e999")),
        *((MEMORY.named["kubernetes_quantity"], *each) for each in (("4Gi", 4), ("512Mi", 0.5), ("1048576Ki", 1))),
        *((MEMORY.named["kubernetes_quantity"], *each) for each in (("134217728", 0.125), ("1e9", 1e9 / 2**30))),
        *(
            (MEMORY.named["kubernetes_quantity"], *each)
            for each in (("1G", 1e9 / 2**30), ("4gi", None), ("1E", 2**-30 * 1e18))
        ),
        (GPUS.named["kubernetes_quantity"], "2", 2),
        *((kind.named["decimal_comma"], "1234,5", 1234.5) for kind in (CORES, GPUS, MEMORY, DURATION, RATE)),
        *((CORES.named["decimal_comma"], text, v) for text, v in (("7", 7), ("-0,5", -0.5), ("1,5e3", 1500))),
        *((CORES.named["decimal_comma"], text, None) for text in ("1.5", "1.234,5", "1,2,3", ",", "", "1,", "inf")),
        (STATUS.named["slurm_state"], "CANCELLED by 1000", "cancelled"),
        (STATUS.named["slurm_state"], "WEIRD", None),
        (time_value("iso", "Europe/Berlin"), "2024-01-02T03:04:05", "2024-01-02 02:04:05+00"),
        (time_value("iso", "Europe/Berlin"), "2024-03-31T01:59:59", "2024-03-31 00:59:59+00"),
        (time_value("iso", "Europe/Berlin"), "2024-03-31T02:30:00Z", "2024-03-31 02:30:00+00"),
        (time_value("iso", "Europe/Berlin"), "2024-03-31T03:00:00", "2024-03-31 01:00:00+00"),
        (time_value("iso", "Europe/Berlin"), "2024-10-27T02:30:00", "2024-10-27 01:30:00+00"),
        (time_value("iso", "UTC"), "2024-03-31T02:30:00", "2024-03-31 02:30:00+00"),
        (time_value("%d.%m.%Y %H:%M", "Europe/Berlin"), "31.03.2024 03:30", "2024-03-31 01:30:00+00"),
        (time_value("iso", "America/Sao_Paulo"), "2018-11-04", "2018-11-04 03:00:00+00"),
        (time_value("%d/%m/%Y", "America/Sao_Paulo"), "04/11/2018", "2018-11-04 03:00:00+00"),
        (time_value("iso", "Europe/Berlin"), "2024-01-02 03:04:05.5Z", "2024-01-02 03:04:05.5+00"),
        (time_value("iso", "Europe/Berlin"), "2024-01-02T03:04:05 UTC", "2024-01-02 03:04:05+00"),
        (time_value("iso", "UTC"), "2024-01-02T03:04:05-05:30", "2024-01-02 08:34:05+00"),
        (time_value("iso", "UTC"), "2024-13-02", None),
        (time_value("iso", "UTC"), "infinity", None),
        (time_value("iso", "UTC"), "9999-12-31", None),
        (time_value("epoch_ms", "UTC"), "1700000000123", "2023-11-14 22:13:20.123+00"),
        (time_value("epoch_s", "UTC"), "1e30", None),
        (time_value("%d/%m/%Y %H:%M", "Asia/Tokyo"), "02/01/2024 03:04", "2024-01-01 18:04:00+00"),
        (time_value("%Y-%m-%d %H:%M %z", "UTC"), "2024-01-02 03:04 +0900", "2024-01-01 18:04:00+00"),
        (time_value("it's {text} %Y", "UTC"), "it's {text} 2024", "2024-01-01 00:00:00+00"),
    ],
)
def test_texts_become_values(conversion: Conversion | str, text: str, value: object) -> None:
    assert value_of(conversion, text) == value


@given(st.lists(st.one_of(st.sampled_from(NAMES), st.text("aB0f9-_.#x\n", max_size=9)), max_size=4).map("".join))
def test_names_become_the_groups_that_connectors_make(name: str) -> None:
    assert value_of(TEXT.named["name_pattern"], name) == normalised(name)


@pytest.mark.parametrize("state", SLURM_STATES)
def test_every_state_of_slurm_is_known(state: str) -> None:
    assert value_of(STATUS.named["slurm_state"], state) == str(SLURM_STATES[state])
