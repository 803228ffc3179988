"""The report's section on energy, carbon and money: kWh of machines, idle energy of unused GPUs.

The report has it only with `--grid`.
"""

from collections.abc import Iterable
from typing import Final

import polars as pl

from pipelines.report.claims import gpu_slack
from pipelines.report.parts import Asked, Note, Part, Section, Table, Traces
from pipelines.simulation.energy.account import G_PER_KG, WATTS_PER_KW
from pipelines.simulation.energy.power_file import PowerTable
from pipelines.simulation.energy.site import Meters, machine_notes
from scheduler_core.cluster import Machine
from scheduler_core.planning.hourly import HOUR_S, Grid

UNKNOWN: Final = "not in the trace"
KEY: Final = ("cluster", "machine")
WATTS: Final = ("cpu_idle_w", "cpu_work_w", "gpu_idle_w", "gpu_work_w")
"""Power of a machine's CPUs and of all its GPUs: idle, and what full use adds."""


def energy(traces: Traces, meters: Meters) -> Section:
    """Build the section: energy by machine type, and idle energy of requested but unused GPUs."""
    parts: list[Part] = []
    whole = traces.ask("utilisation_by_machine_type", "cluster", "machine")
    drawn = [machine_energy(whole.of(trace), traces, trace, meters.table) for trace in whole.traces]
    if any(rows.height for rows in drawn):
        said = "kWh of machine-hours with GPU samples; measured_kwh is of GPUs in measured_share of their hours, the "
        said += "rest is modelled: idle power, and what use adds (busy_kwh)"
        rows = pl.concat([each for each in drawn if each.height])
        parts.append(Table(name="energy_by_machine", title="Energy by type of machine", rows=rows, said=said))
    slack = traces.ask("over_claim", "gpu_type", "task_type")
    idle = idle_draw(slack, meters.table)
    parts += [_table(idle, grid) for grid in meters.grids if idle.height]
    notes = [*meters.notes, *_taken_as(traces, whole.traces, idle, meters.table)]
    parts += [*(Note(text=f"{note}.") for note in notes), *whole.notes, *slack.notes]
    return Section(
        name="energy",
        title="Energy, carbon and money",
        intro="A GPU draws its idle power whether it is used or not. Measured: use, carbon intensity, price, and the "
        "power of GPUs that exporters recorded. Modelled: other power, linear in use between published idle and full "
        "draw.",
        parts=tuple(parts),
    )


def machine_energy(rows: pl.DataFrame, traces: Traces, trace: str, table: PowerTable) -> pl.DataFrame:
    """Return the kWh of each machine type in hours with GPU samples: measured, modelled idle, and modelled above idle.

    `measured_kwh` is of GPUs in hours with measured power, which are `measured_share` of the GPU-hours; CPUs and the
    other GPU-hours are modelled. CPU use is the mean of the machine's samples, zero without samples. Machines missing
    from the machine list are left out.
    """
    listed = traces.lake.table("machines", trace).select(*KEY, "gpus", "cpu_cores", "gpu_type").collect()
    watts = listed.with_columns(
        pl.Series("node", [_watts(row, table) for row in listed.iter_rows(named=True)], dtype=pl.List(pl.Float64))
    ).select(*KEY, "gpus", *(pl.col("node").list.get(at).alias(name) for at, name in enumerate(WATTS)))
    gpu, cpu = (rows.filter(pl.col("resource") == name) for name in ("gpu", "cpu"))
    each = gpu.join(cpu.select(*KEY, cpu_frac="mean_frac"), on=KEY, how="left").join(watts, on=KEY)
    each = each.join(_measured_power(traces, trace), on=KEY, how="left").with_columns(
        gpu_hours=pl.col("machine_hours") * pl.col("gpus").fill_null(0)
    )
    seen = pl.min_horizontal(pl.col("sampled_h").fill_null(0.0), "gpu_hours")
    rest = 1.0 - pl.when(pl.col("gpu_hours") > 0).then(seen / pl.col("gpu_hours")).otherwise(0.0)
    kwh = pl.col("machine_hours") / WATTS_PER_KW
    busy = pl.col("mean_frac") * rest * pl.col("gpu_work_w") + pl.col("cpu_frac").fill_null(0.0) * pl.col("cpu_work_w")
    return (
        each.sort(KEY)
        .group_by("machine_type", maintain_order=True)
        .agg(
            machines=pl.len(),
            machine_hours=pl.col("machine_hours").sum(),
            measured_share=seen.sum() / pl.col("gpu_hours").sum(),
            measured_kwh=(seen * pl.col("measured_w").fill_null(0.0)).sum() / WATTS_PER_KW,
            idle_kwh=(kwh * (pl.col("cpu_idle_w") + rest * pl.col("gpu_idle_w"))).sum(),
            busy_kwh=(kwh * busy).sum(),
        )
        .sort("machine_type")
        .select(pl.lit(trace).alias("trace"), pl.all())
    )


def _measured_power(traces: Traces, trace: str) -> pl.DataFrame:
    """Return the mean watts of one GPU of each machine (`measured_w`), and the GPU-hours that its samples cover."""
    drawn = traces.lake.table("environment", trace).filter(
        pl.col("energy_j").is_not_null(), pl.col("coverage_frac") > 0
    )
    sampled_h = pl.col("coverage_frac").sum()
    return (
        drawn.group_by(KEY).agg(sampled_h=sampled_h, measured_w=pl.col("energy_j").sum() / HOUR_S / sampled_h).collect()
    )


def idle_draw(slack: Asked, table: PowerTable) -> pl.DataFrame:
    """Return the idle energy of requested but unused GPUs by GPU type and task type: slack GPU-hours x idle watts."""
    if not slack.rows.width:
        return pl.DataFrame()
    rows = gpu_slack(slack.rows)
    types = [table.gpus.get(name or "", table.gpus[table.defaults.gpu]).idle_w for name in rows["gpu_type"].to_list()]
    return rows.select(
        "trace",
        pl.col("gpu_type", "task_type").fill_null(UNKNOWN),
        "tasks",
        "requested_h",
        "slack_h",
        pl.Series("gpu_idle_w", types, dtype=pl.Float64),
    ).with_columns(idle_kwh=pl.col("slack_h") * pl.col("gpu_idle_w") / WATTS_PER_KW)


def _table(idle: pl.DataFrame, grid: Grid) -> Table:
    rows = idle.group_by("trace", "gpu_type", maintain_order=True).agg(
        pl.col("tasks", "requested_h", "slack_h").sum(), pl.col("gpu_idle_w").first(), pl.col("idle_kwh").sum()
    )
    said = [f"GPU-hours of measured tasks; idle_kwh = slack_h x idle watts, of the machines; PUE {grid.pue:g}"]
    for series, column, per in ((grid.carbon, "carbon_kg", G_PER_KG), (grid.price, "cost_usd", 1.0)):
        if series is not None:
            mean = float(series.values.mean())
            rows = rows.with_columns((pl.col("idle_kwh") * grid.pue * mean / per).alias(column))
            said.append(f"{column} at the mean of all hours, {mean:.4g} {series.unit}")
    return Table(
        name=f"idle_gpus-{grid.zone}",
        title=f"Idle energy of requested but unused GPUs, {grid.zone}",
        rows=rows,
        said="; ".join(said),
    )


def _taken_as(traces: Traces, drawn: Iterable[str], idle: pl.DataFrame, table: PowerTable) -> list[str]:
    """Return notes on GPU types that are not in the power table and on the types assumed instead."""
    notes = []
    for trace in drawn:
        machines = [_machine(row) for row in traces.lake.table("machines", trace).collect().iter_rows(named=True)]
        notes += [f"{trace}: {note}" for note in machine_notes(table, machines)]
    if not idle.width:
        return notes
    unknown = idle.filter(~pl.col("gpu_type").is_in(list(table.gpus)))
    for trace, tasks in unknown.group_by("trace", maintain_order=True).agg(pl.col("tasks").sum()).iter_rows():
        notes.append(
            f"{trace}: {tasks} tasks have no GPU type of the table: idle draw assumed as of {table.defaults.gpu}"
        )
    return notes


def _watts(row: dict[str, object], table: PowerTable) -> list[float]:
    machine = _machine(row)
    node = table.node(machine)
    return [
        node.cpu_idle_w,
        node.cpu_full_w - node.cpu_idle_w,
        machine.gpus * node.gpu_idle_w,
        machine.gpus * (node.gpu_full_w - node.gpu_idle_w),
    ]


def _machine(row: dict[str, object]) -> Machine:
    gpus, cores, kind = row["gpus"], row["cpu_cores"], row["gpu_type"]
    return Machine(
        name=str(row["machine"]),
        cpu_cores=float(cores) if isinstance(cores, float) else 0.0,
        mem_gib=0.0,
        gpus=gpus if isinstance(gpus, int) else 0,
        gpu_type=str(kind) if kind is not None else None,
    )
