"""Build the PAI sample of docs/results.md from a public table of joined rows of Alibaba's PAI trace.

    taut fetch pai-sample
    python docs/pai_sample.py data/raw/pai-sample
    taut ingest pai --from data/raw/pai-sample/pai

The results are of 857 of its 999 rows; `ROWS` picks them. A row holds a job, its task, one worker and the worker's
sensor values, so the published tables are cut out of it; a job's times are those of its tasks. The script compares the
tables with the bytes behind the results.
"""

import base64
import csv
import hashlib
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

COLUMNS = {
    "group_tag": ("inst_id", "user", "gpu_type_spec", "group", "workload"),
    "instance": (
        *("job_name", "task_name", "inst_name", "worker_name", "inst_id"),
        *("status", "start_time", "end_time", "machine"),
    ),
    "job": ("job_name", "inst_id", "user", "status", "start_time", "end_time"),
    "sensor": (
        *("job_name", "task_name", "worker_name", "inst_id", "machine", "gpu_name", "cpu_usage", "gpu_wrk_util"),
        *("avg_mem", "max_mem", "avg_gpu_wrk_mem", "max_gpu_wrk_mem", "read", "write", "read_count", "write_count"),
    ),
    "task": (
        *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
        *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
    ),
}
"""Columns of the published tables; `gpu_type_spec` is not in the joined rows."""

SHA256 = "4bfec2484823dfe78e0b2ee6c1b2d0444b757e92a3e44b1e9af806630a5e2c6d"
"""Of the five tables behind the results, one after the other."""


def sample(rows: Iterable[dict[str, str]]) -> dict[str, list[tuple[str, ...]]]:
    """Return the tables of the joined rows that the results are of; every row of a table is there once."""
    kept = [row for row in rows if digest(row) in WANTED]
    for row in kept:
        row["gpu_type_spec"] = ""
    tables = {name: list(dict.fromkeys(cut(row, name) for row in kept)) for name in COLUMNS}
    lasted: dict[tuple[str, ...], list[str]] = {}
    for *job, start, end in tables["job"]:
        lasted.setdefault(tuple(job), []).extend((start, end))
    tables["job"] = [(*job, min(times, key=float), max(times, key=float)) for job, times in lasted.items()]
    return tables


def cut(row: dict[str, str], table: str) -> tuple[str, ...]:
    """Return the columns of a table."""
    return tuple(row[name] for name in COLUMNS[table])


def digest(row: dict[str, str]) -> bytes:
    """Return three bytes that tell the rows apart."""
    return hashlib.sha256(",".join(cut(row, "sensor")).encode()).digest()[:3]


def main(folder: Path) -> None:
    """Write the tables below `folder`, and say whether they are those of the results."""
    with (folder / "1_000_sampled_test_data.csv").open(newline="", encoding="utf-8") as file:
        tables = sample(csv.DictReader(file))
    target, whole = folder / "pai", hashlib.sha256()
    target.mkdir(exist_ok=True)
    for name, rows in tables.items():
        path = target / f"pai_{name}_table.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
        whole.update(path.read_bytes())
    shutil.copy(folder / "pai_machine_spec.tar.gz", target)
    same = whole.hexdigest() == SHA256
    print(f"{len(tables['task'])} tasks, {'byte for byte' if same else 'not'} the sample of the results")


ROWS = (
    "AB77ALQSASnBAY5uAkh1Am8oAtCbAwIZAzxXA5VqA9gIA+v2A+wvBBVMBDXZBGFjBLXhBOKGBZ0jBkmrBt/gBuwPBxCIB422B5cmCGn2CJMgCLtd"
    "CP1FCQ/8CWIjCYaFCeekCgdYCrXDCySLCzcuCz50C08JC38lC5GyDA8oDC06DIuEDSFtDSG3DTWUDTkWDUaADXeJDYuJDduWDfP+DlHbDuvtD4Om"
    "D424D5hAD8nbD+oUEJ12ENLwEXIJEXflEYbzEal1Ef+fEgfQEhCxEmM2EqtIEzXnEzr5E0rXE3B5E7cUE+WbFC4fFDMdFHI3FHLtFMc5FQoMFTbp"
    "FWf8FY49FdOYFd41FnELFvL+FvafFyS7F9WgGAtzGB9OGEY2GIfBGbjVGvshGwvBG20pG5jyHD/VHXNrHXbvHX0qHYvtHbJ8HblJHb32He0FHpta"
    "HuqPHvhNH5Q+H9b0IGTxIH2TIQ/OIRfvIWGUIkfjIo0SIq+/IrUUItIiIw1EJEVlJFraJHbcJNpaJeFrJhOSJj+TJoEeJvc4J4KaJ/AhKAQXKBU+"
    "KMLlKT7YKW/6KinsKwbjKxSbK9uALLfoLNXELTHHLcXULjvdLm0bLm8ELtA0LuA8LzaQL2mtMBfzMCJbMExPMFDTMGW2MKZfMLotMQCYMRvlMWS8"
    "MayCMcbzMfCKMm6CMrWdMt2FMt5BMvfYMwKYMxKMMxzeMyRmM3YLM5V9M58IM66mNNalNZqPNarUNyM+N7SsN9iyN+S5OBFnODOnOJFMONPiOPoB"
    "OVnnOanbOqF3OqKROsUCO307O6JYO6P7PEffPIGPPN6YPYzqPbg9Pc+IPfJwPlKcPpP/PsB2Pz3uQEIzQPW1QQHYQRB0QTp3QXtpQZFdQg0uQnJS"
    "Qni8QoOcQp1cQraxQrqLQsNzQ1jsQ2MdQ3k8Q466Q9dyRDOaREj7RKzxRPGqRPpzRUW/RX51RmhVRogMRvXcR3MNR3QIR4g2R6b0SEbESLu0SQjT"
    "SXtmSZiZSZm7SaNGSer2SzDBS5FMS77TTAuBTDT2TPWDTVLTTaWZTgXsTohDTpylTqctTsHXTuntTv9nTzP1T3J5T3lHT4BJT42rT7fCT+SRUXUT"
    "UZu2UjLSUj72Uxt9U0hyVDdJVD4PVHMvVIgfVI3dVKCfVLBMVWwcVW+pVXdvVYhlVZCYVpnEVwZKVxY/V6k8V9RYWCGWWHW4WOkRWSbnWUxmWV6s"
    "WW8dWdyyWfW2WgMzWlMRWs1fWwCUWzLQW1fxW4DhW4lLW66XXHnvXLEVXUQyXafkXj+8XrYEXtIfX+NVYBUEYLGAYOX5YPDVYVHHYZHAYbzmYc1/"
    "YiEGYoXGYrT8Y1brY2cXY41oY+ufZB7cZCJeZFQTZGyZZigcZjAfZjfnZlkSZoN8ZoeWZwgHZyJCZ4chZ9v0aC59aF47aIC3aKskaMUcaNSyaQFq"
    "aS1xaWdkac8Fac+xaeb6al7HarzdavAdawFgazs2a0+Qa1Rha7Xja7Y9bGP1bHtGbMDmbnTfbo+hbrOpbw30bxZfb1arb4aTb41Fb9u0b+fPb/N8"
    "b/xocLtWcOB6cRWAcacaca8jcbqwcb7VceDZcsTtcwBkc4hlc6NgdCjGdE/4dPfQdQardQ1vdRnxdR/ydaEmdbHmdglhdhuddvP9dv7JdwfEd0VP"
    "eK+ceLd5eOfeeTYdeeLxenJFetU4e1gQe4Z6e4/Ee7BRe7Q8e8idfH8HfNaVfVQHfWqOffTpfjG3fmjRfpS8fpYUfr/ifsTef1O1f7/tgCJAgGNQ"
    "gGyUgLjjgMm4gS+pgVlWga+fgcgygeIJghZ0gkAUgk2ygyIVg2ihg5wGg8Dxg8dfg+2qg/MehCCChCKrhFxjhS2EhVgdhadAhdUEhfbuhjf5hmKZ"
    "hmKxhxRTh5/Qh9sriEVjiHqXiNaiiQsniTMDig0viixbipL0itVPi1Jki5cxjLHIjLVtjPTwjdwVjjC/jkRojsWuj7zGj+F+kQZZkW+rkbRjkvkY"
    "k1MSk32hk66rk8MDk9htk9wzlM8ilO8zlT9qlceCljpYl52Xl7pml8f3l+F7l+eWmDyCmF9/mIgmmOBumR7lmgVtm80InFP3nGD6nIMonJJxnTsd"
    "njYRnjy9nnWjnq3zoABJoDaaoJMboJ6noL4roMVhoRJboWkcogZEolRYoqfTornToyAAoyHCoyYRo6MWpFb5pGjDpH14pI3QpPe1pQlHpeJ+peTF"
    "pglWpgxsplpbpo+/pp+jpzw5pz27p1Wmp9jKqByPqKXMqNYoqUD3qecqqhiRqkKyquMBq3ZSq4hzq5aGq6Xrq+OyrDAGrJ9yrQOKrQY+rWjtrZ5A"
    "ray1rchTr12yr91CsNwBsTuOsYdbsbxzsffvsnQdsxIWsxm9s19ds8X5tEELtE+HtWQztYb9tffXt3Sdt33zuA40uCNOuPNmuVa/uYlwucbOuidD"
    "un5juqBOuwAjuzWxu+ShvFZzvVfPvW1KvYrwvZaWverYvfb2vk/Wvpl+vqpFvrQ0wG+DwHiKwII3wJX8wScVwaVSwdxlwfqmwjz2wkTcwwPiwxv0"
    "wzHYw3hCw61Iw8V9xEdtxNcixT2BxUxbxYA9xcsgxdGHxwKexwr/x0szx2uGx/a1yKrRyRa/yXR1yatRygpyyrZgysxvy49Ny7mWy9QXy/vWzHhr"
    "zVP5zdvZzoqozp+Nzq4gzxKmzymoz2YWz3hTz6qn0AGL0Bkg0F8S0Jn40Nmg0TbC0Tji0Xkw0a/T0c5e0eMd0vY504yl07G907HV0/ic1VQx1X3s"
    "1fhi1gUU1s+v1uBw10G/141916Ft17GT2AHk2AYV2A8s2B7F2Gek2LQ12MQp2RaM2RqN2Rrg2SpI2ULY2h7d2pq72sY/21vX25xt26Gd26Lj26vu"
    "28D129273C3X3E6v3GCl3Nm+3PoE3Vj13aff3m/f3y/G32Ly352b39Bp4BiR4J6h4NEN4Twi4WpB4YBn4i424i8X4tz34w8X42Rg44545ATS5Ezm"
    "5HZm5I395RnP5Z4m5cI95ruV5wG/5wpa5zqg59Wo6FVw6GTC6HTb6J/G6KQK6LUb6SFj6Wqo6fMw6kza6zvT61QL63Wk63eF66Oh7BEj7Enq7MPL"
    "7S8q7ipS7koK7pax7qGw7q0B7raG7sxA7voH701A71np8Byw8Cy/8HPI8Nyc8YOd8aqC8c++8eRP8hYD8sr18tpz8vrG8wHz8yC98y/L801184Iq"
    "87u08/sB9Fj09HLH9Pbj9d4Y9fHl9gh79i8e9lKz9lZr9mbn9sE/9tRQ9tth9yFg9yfH94Vq94pZ9/HB+JsP+NyR+OyR+RnR+RzJ+U+o+YNx+cEf"
    "+mp9+7gY+9GT++p9/PUE/SI8/Up7/VxM/Zgi/ZyV/a4E/cZu/p6c/rut/sVQ/sov/4CH"
)
"""The first three bytes of the SHA-256 of every wanted row's sensor columns, in base 64."""

WANTED = {bytes(three) for three in zip(*[iter(base64.b64decode(ROWS))] * 3, strict=True)}

if __name__ == "__main__":
    main(Path(sys.argv[1]))
