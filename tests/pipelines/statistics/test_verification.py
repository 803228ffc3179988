"""Published numbers against a lake: what matches, what is off and by how much, what is not compared and why."""

from pathlib import Path

import pytest

from pipelines.errors import BadUsage, LakeError, SourceError
from pipelines.lake.lake import Lake
from pipelines.statistics import STATISTICS
from pipelines.statistics.published import FOLDER, printed, read_published
from pipelines.statistics.shown import verdict_rows
from pipelines.statistics.verification import verify
from tests.pipelines.statistics.lakes import job, make_lake, ran

OF = """
[of.log]
trace = "toy"
what = "the log"
rows = { log = 4 }
period = ["2020-07-01", "2020-07-02"]
"""


def row(published: str, statistic: str = "run_time", more: str = "") -> str:
    return f'[[rows]]\nof = "log"\nstatistic = "{statistic}"\n{more}\npublished = {{ {published} }}\nsource = "print"\n'


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    jobs = [
        ran(0, 100.0, req_gpus=1.0),
        ran(1, 200.0, req_gpus=1.0),
        ran(2, 3600.0, status="failed", req_gpus=2.0),
        job(3),
    ]
    return make_lake(tmp_path / "lake", {"jobs": jobs})


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    return tmp_path / "published"


def verdicts(lake: Lake, folder: Path, *texts: str) -> list[dict[str, object]]:
    folder.mkdir()
    (folder / "toy.toml").write_text(OF + "".join(texts))
    return verify(lake, read_published(folder)).to_dicts()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("published", "found", "verdict"),
    [
        ('mean_s = "1300"', "1300", "match"),
        ('mean_s = "1,300.0"', "1300", "match"),
        ('mean_s = "1301"', "1300", "off"),
        ('p50_s = ".0556 h"', "0.05555555556", "match"),
        ('p50_s = ".0555 h"', "0.05555555556", "off"),
        ('gpu_hours_over_1h_share = "0 %"', "0", "match"),
        ('over_1h_share = "> 0"', "0", "off"),
        ('max_s = "> 3599"', "3600", "match"),
        ('max_s = "3.6e+03"', "3600", "match"),
    ],
)
def test_a_number_matches_when_it_rounds_to_what_was_printed(
    lake: Lake, numbers: Path, published: str, found: str, verdict: str
) -> None:
    [checked] = verdicts(lake, numbers, row(published))
    assert (checked["found"], checked["verdict"]) == (found, verdict)


def test_off_says_by_how_much(lake: Lake, numbers: Path) -> None:
    [checked] = verdicts(lake, numbers, row('mean_s = "1000"', more='note = "which jobs is not said"'))
    assert (checked["off_by"], checked["off_by_frac"]) == (300.0, 0.3)
    assert (checked["why"], checked["source"]) == ("which jobs is not said", "print")
    [shown] = verdict_rows(verify(lake, read_published(numbers)))
    assert shown["verdict"] == "off by 300 (+30.00%)"


def test_read_off_figures_have_their_own_tolerance(lake: Lake, numbers: Path) -> None:
    near, far = verdicts(lake, numbers, row('mean_s = "1200", min_s = "80"', more="about = 0.1"))
    assert (near["verdict"], far["verdict"]) == ("match", "off")


def test_several_rows_are_added_only_when_it_says_so(lake: Lake, numbers: Path) -> None:
    where = 'where = { status = ["completed", "failed"] }'
    [both] = verdicts(lake, numbers, row('gpu_jobs = "3"', "gpu_hours_by_status", where + "\nadd = true"))
    assert both["verdict"] == "match"
    (numbers / "toy.toml").write_text(OF + row('gpu_jobs = "3"', "gpu_hours_by_status", where))
    with pytest.raises(SourceError, match="2 rows match, expected one"):
        verify(lake, read_published(numbers))


def test_the_empty_text_stands_for_null_and_texts_compare(lake: Lake, numbers: Path) -> None:
    null, first = verdicts(
        lake,
        numbers,
        row('jobs = "1"', "status_counts", 'where = { status = "" }'),
        row('first_submit = "2020-07-01 00:00:01"', "period"),
    )
    assert null["verdict"] == "match"
    assert (first["verdict"], first["found"], first["off_by"]) == ("off", "2020-07-01 00:00:00", None)


def test_a_sample_is_not_compared_and_what_differs_is_said(tmp_path: Path, numbers: Path) -> None:
    sample = make_lake(tmp_path / "sample", {"jobs": [ran(0, 1300.0)]}, raw={("c", "log"): 1})
    [checked] = verdicts(sample, numbers, row('mean_s = "1300"'))
    assert (checked["verdict"], checked["found"], checked["off_by"]) == ("not computable", None, None)
    assert checked["why"] == (
        "other rows: log has 1 here, 4 there; submitted 2020-07-01 to 2020-07-01 here, 2020-07-01 to 2020-07-02 there"
    )


def test_a_damaged_whole_is_compared(tmp_path: Path, numbers: Path) -> None:
    jobs = [ran(i, 1.0) for i in range(399)]
    lake = make_lake(tmp_path / "damaged", {"jobs": jobs}, raw={("c", "log"): 399})
    numbers.mkdir()
    (numbers / "toy.toml").write_text(OF.replace("log = 4", "log = 400") + row('jobs = "400"'))
    [checked] = verify(lake, read_published(numbers)).to_dicts()
    assert (checked["verdict"], checked["off_by"], checked["off_by_frac"]) == ("off", -1.0, -0.0025)


def test_why_a_number_cannot_be_computed(lake: Lake, numbers: Path) -> None:
    cluster = '[of.other]\ntrace = "toy"\nwhat = "another"\ncluster = "Earth"\n'
    table = '[of.absent]\ntrace = "toy"\nwhat = "absent"\nrows = { sensor = 4 }\n'
    parts = '[of.half]\ntrace = "toy"\nwhat = "half"\nparts = ["whole_of_d"]\n'
    whole = '[of.whole_of_d]\ntrace = "toy"\nwhat = "d"\n'
    texts = [row('mean_s = "1"').replace('"log"', f'"{name}"') for name in ("other", "absent", "half")]
    unanswered = row('mean_s = "1"', "queueing_delay") + row('jobs = "1"', "status_counts", 'where = { status = "x" }')
    lost = '[[uncomputed]]\nof = "log"\nwhat = "w"\npublished = "1"\nwhy = "other definition"\nsource = "s"\n'
    rows = verdicts(lake, numbers, cluster, table, parts, whole, *texts, unanswered, lost)
    assert [row["verdict"] for row in rows] == ["not computable"] * 6
    assert [row["why"] for row in rows] == [
        "no cluster Earth in this lake (it has c)",
        "no table sensor in this lake",
        "not these rows alone: the trace also holds c",
        "jobs.queue_s is null in all 4 rows of toy "
        "(no queueing delay is known: jobs start when submitted, or have no start)",
        "no such row here, or its value is null",
        "other definition",
    ]


def test_nothing_published_is_said(lake: Lake, numbers: Path, tmp_path: Path) -> None:
    with pytest.raises(BadUsage, match="nothing is published of 'toy'; numbers are there of helios, openb, pai"):
        verify(lake, read_published(), ["toy"])
    with pytest.raises(LakeError, match="holds toy; numbers are published of helios"):
        verify(lake, read_published())
    with pytest.raises(LakeError, match="no trace 'pai'"):
        verify(lake, read_published(), ["pai"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[of", "toml"),
        ('[[rows]]\nof = "log"\n', "statistic"),
        (row('mean_s = "1"').replace('"log"', '"lag"'), "found numbers of 'lag'; expected one of log"),
        (row('mean_s = "1"', more="colour = 1"), "colour"),
    ],
)
def test_files_not_in_their_form_are_refused(lake: Lake, numbers: Path, text: str, said: str) -> None:
    with pytest.raises(SourceError, match=said):
        verdicts(lake, numbers, text)


def test_a_folder_without_numbers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"found no \*.toml"):
        read_published(tmp_path)


@pytest.mark.parametrize("text", ["abc", "1 parsec", "2020-03-18 04:01:39", ""])
def test_what_is_no_number_is_a_text(text: str) -> None:
    assert printed(text) is None


@pytest.mark.slow
def test_the_published_numbers_name_what_there_is(tmp_path: Path) -> None:
    published = read_published(FOLDER)
    empty = make_lake(tmp_path, {})
    asked = {(each.statistic, each.by) for each in published.rows}
    columns = {(name, by): set(STATISTICS[name](empty, "toy", by, None).columns) for name, by in asked}
    for each in published.rows:
        assert {*each.where, *each.published} <= columns[each.statistic, each.by], each
    numbers = [text for each in published.rows for text in each.published.values()]
    texts = [text for text in numbers if printed(text) is None]
    assert len(numbers) > 400
    assert all(len(text) == 64 or text.startswith("2020-") for text in texts)
