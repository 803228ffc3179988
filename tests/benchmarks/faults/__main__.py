"""Kill -9 Dask workers within their units, and ingests within their commit to a bucket; fails if a kill leaves a trace.

Each kill is at a seeded moment. All jobs are synthetic. The bucket is in a real S3-compatible server.
20 kills of workers and 50 of ingests take about half an hour.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.benchmarks.faults.commits import killed_commits
from tests.benchmarks.faults.workers import ingested, jobs_of_clusters, killed, trained
from tests.benchmarks.harness import Row, measure, parser_of
from tests.object_store import BUCKET, running_store

JOBS: Final = 120_000
"""Jobs of the largest cluster."""
TYPES: Final = ("cv", "nlp")


def worker_rows(folder: Path, kills: int, seed: int) -> Iterator[Row]:
    """Yield a row for each kill of a worker: the first half in an ingest, the others in a training."""
    ingest = ingested(jobs_of_clusters(folder / "from", JOBS))
    yield from killed("ingest", ingest, folder / "ingest", (kills + 1) // 2, seed)
    train = trained(folder / "ingest" / "local" / "made" / "lake", TYPES)
    yield from killed("training", train, folder / "training", kills // 2, seed)


def commit_rows(folder: Path, kills: int, seed: int) -> Iterator[Row]:
    """Yield a row for each kill of an ingest into a bucket."""
    with running_store() as store:
        os.environ.update(store.environment() | {"XDG_CACHE_HOME": str(folder / "cache")})
        yield from killed_commits(f"s3://{BUCKET}/lake", folder, kills, seed)


def main(argv: Sequence[str] | None = None) -> None:
    """Print a row for each kill; end with 1 if any left more than the old or the new result."""
    parser = parser_of("faults", __doc__, ["workers", "commits"])
    parser.add_argument("--workers", type=int, default=20, metavar="N", help="kills of Dask workers (20)")
    parser.add_argument("--commits", type=int, default=50, metavar="N", help="kills of ingests into a bucket (50)")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="taut-faults-") as scratch:
        parts = {
            "workers": lambda: worker_rows(Path(scratch) / "workers", options.workers, options.seed),
            "commits": lambda: commit_rows(Path(scratch) / "commits", options.commits, options.seed),
        }
        kept = {name: part for name, part in parts.items() if getattr(options, name)}
        rows = measure(kept, options)
    wrong = sum(row["expected"] != row["found"] for row in rows)
    print(f"{wrong} of {len(rows)} rows show something else than expected", file=sys.stderr)
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
