"""Build the Venus sample of docs/results.md from the published Helios log.

    python docs/venus_sample.py data/raw/helios/data/Venus data/raw/venus/Venus

The sample has every GPU job submitted up to 2020-08-31, without user, VC, CPUs, nodes and state; a job starts
when it is submitted, and runs for at most 48 h. That the published log gives the bytes behind the results was not
checked, so the script compares them.
"""

import hashlib
import shutil
import sys
from pathlib import Path

import polars as pl

SHA256 = "021dd95e1478b65541e55a91755f5983348de0484db27bd6d2a276e70f79a948"
UNTIL, LONGEST_S = "2020-09-01", 48 * 3600
HIDDEN = ("user", "vc", "cpu_num", "node_num", "state")


def sample(log: pl.DataFrame) -> pl.DataFrame:
    """Return the sample of a log whose columns are text."""
    jobs = log.filter(pl.col("gpu_num").cast(pl.Int64) > 0, pl.col("submit_time") < UNTIL)
    run_s = pl.col("duration").cast(pl.Float64).cast(pl.Int64).clip(upper_bound=LONGEST_S)
    submitted = pl.col("submit_time").str.to_datetime("%Y-%m-%d %H:%M:%S")
    return jobs.sort("submit_time", pl.col("job_id").cast(pl.Int64)).with_columns(
        *(pl.lit(None, pl.String).alias(name) for name in HIDDEN),
        start_time=pl.col("submit_time"),
        end_time=(submitted + pl.duration(seconds=run_s)).dt.strftime("%Y-%m-%d %H:%M:%S"),
        duration=run_s,
        queue=pl.lit(0),
    )


def main(published: Path, target: Path) -> None:
    """Write the sample, and say whether it is that of the results."""
    target.mkdir(parents=True, exist_ok=True)
    jobs = sample(pl.read_csv(published / "cluster_log.csv", infer_schema=False))
    jobs.write_csv(target / "cluster_log.csv")
    shutil.copy(published / "cluster_gpu_number.csv", target)
    same = hashlib.sha256((target / "cluster_log.csv").read_bytes()).hexdigest() == SHA256
    print(f"{len(jobs)} jobs, {'byte for byte' if same else 'not'} the sample of the results")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
