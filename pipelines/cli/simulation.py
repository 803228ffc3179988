"""`taut simulate`: a trace's jobs on a cluster, with and without shrinking, drawn or as recorded.

No logic beyond reading options and writing rows. Called by `pipelines.cli`, which registers the command.
"""

import typer

from pipelines.cli import energy_options as energy
from pipelines.cli import simulation_options as options
from pipelines.cli.options import Cluster, Format, FormatOption, Lake, Offline, Seed, TokenFile, Trace, emit, say


def simulate(
    lake: Lake = None,
    trace: Trace = None,
    cluster: Cluster = None,
    vc: options.Vc = None,
    since: options.Since = None,
    until: options.Until = None,
    arrivals: options.Arrivals = options.ArrivalsOption.DRAWN,
    rate: options.Rate = None,
    mix: options.Mix = None,
    replications: options.Replications = None,
    hours: options.Hours = None,
    warm_up_h: options.WarmUpH = 0.0,
    cluster_from: options.ClusterFrom = None,
    match_gpu_type: options.MatchGpuType = False,
    policy: options.Policy = options.QueueOption.FIFO,
    placement: options.PlacementChoice = options.PlacementOption.BEST_FIT,
    sharing: options.Sharing = None,
    target: options.Target = options.TargetOption.ONLINE,
    popularity: options.Popularity = 1.0,
    aging: options.Aging = 0.0,
    overtakes: options.Overtakes = None,
    backfill: options.Backfill = options.BackfillOption.NONE,
    preempt: options.Preempt = None,
    checkpoint_s: options.CheckpointS = 0.0,
    quantum_s: options.QuantumS = 600.0,
    predictor: options.Predictor = None,
    token_file: TokenFile = None,
    offline: Offline = False,
    theta: options.Theta = 0.05,
    alpha0: options.Alpha0 = None,
    sure_runs: options.SureRuns = None,
    guard: options.Guards = None,
    truth: options.Truths = None,
    mtbf_h: options.MtbfH = None,
    mttr_h: options.MttrH = None,
    outages: options.OutageFile = None,
    grid: energy.GridFolder = None,
    zone: energy.Zone = None,
    carbon_basis: energy.Basis = None,
    grid_start: energy.GridStart = None,
    power: energy.Power = None,
    pue: energy.Pue = None,
    slack: energy.SlackOption = None,
    shift_by: energy.ShiftBy = None,
    seed: Seed = 0,
    out: options.Out = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Simulate a trace's jobs on a cluster, with and without shrinking, under the same arrivals.

    Jobs are drawn from those that were measured, or arrive as the trace recorded them.
    """
    from pipelines.cli.energy_run import Metering
    from pipelines.cli.simulation_run import Advising, Chosen, Failing, Load, discipline_of, simulated
    from pipelines.simulation.aiming import Aiming
    from pipelines.simulation.simulation_rows import shown

    recorded = arrivals is options.ArrivalsOption.RECORDED
    jobs = Chosen(lake=lake, trace=trace, cluster=cluster, vc=vc, since=since, until=until, machines=cluster_from)
    load = Load(rate=rate, mix=mix, replications=replications, hours=hours, warm_up_h=warm_up_h, recorded=recorded)
    discipline = discipline_of(
        policy=policy.value,
        placement=placement.value,
        sharing=None if sharing is None else sharing.value,
        aging=aging,
        overtakes=overtakes,
        backfill=backfill.value,
        preempt=preempt,
        checkpoint_s=checkpoint_s,
        quantum_s=quantum_s,
        match_gpu_type=match_gpu_type,
    )
    failing = Failing(outages=outages, mtbf_h=mtbf_h, mttr_h=mttr_h)
    advising = Advising(
        predictor=predictor,
        token_file=token_file,
        offline=offline,
        theta=theta,
        alpha0=alpha0,
        sure_runs=sure_runs,
        guards=guard,
        truths=truth,
    )
    metering = Metering(
        grid=grid, zone=zone, basis=carbon_basis, start=grid_start, power=power, pue=pue, slack=slack, shift_by=shift_by
    )
    aiming = Aiming(target=target.value, popularity=popularity)
    rows = simulated(jobs, load, discipline, aiming, failing, advising, metering, seed=seed, out=out, say=say)
    emit(shown(rows) if form is Format.TABLE else rows, form)


def register(app: typer.Typer) -> None:
    """Add this file's command to the app."""
    app.command()(simulate)
