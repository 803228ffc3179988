from pathlib import Path

import pytest

from pipelines.lake.connections import configured


@pytest.mark.parametrize("name", [None, "some.duckdb"])
def test_long_queries_print_nothing_among_the_rows(tmp_path: Path, name: str | None) -> None:
    with configured(None if name is None else tmp_path / name) as connection:
        settings = "select current_setting('enable_progress_bar'), current_setting('TimeZone')"

        assert connection.execute(settings).fetchone() == (False, "UTC")
