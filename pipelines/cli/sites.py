"""`taut sites simulate | train | evaluate`: route a trace's jobs among sites in several grid zones.

Slow imports happen inside the functions.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from pipelines.cli.options import Cluster, Format, FormatOption, Lake, Seed, Trace, command_of, emit, opened, say
from pipelines.errors import BadUsage

if TYPE_CHECKING:
    from pipelines.simulation.sites.places import Place, Terms
    from pipelines.simulation.sites.weeks import Weeks

POLICY: Final = Path("data/sites/policy.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Options for jobs, sites and the terms of the utility."""

    lake: Lake = None
    trace: Trace = None
    cluster: Cluster = None
    grid: Annotated[
        Path | None,
        typer.Option(
            "--grid", help="Folder of hourly series, one subfolder a zone.", show_default="grid of TAUT_ENERGY"
        ),
    ] = None
    zone: Annotated[
        list[str] | None,
        typer.Option("--zone", help="Zone of a site (repeat it, 2 to 8).", show_default="six zones, 320 GPUs"),
    ] = None
    sites: Annotated[
        Path | None,
        typer.Option(
            "--sites",
            help="TOML file of own sites: zone, gpus, pue and gpu_type of each.",
            show_default="sizes by zone, A100",
        ),
    ] = None
    year: Annotated[
        int | None,
        typer.Option(
            "--year", help="Year of the series to use.", min=1970, max=2199, show_default="the year of the files"
        ),
    ] = None
    regime: Annotated[
        Literal["A", "B-loose", "B-tight", "C-loose"],
        typer.Option("--regime", help="Worth of GPU time (A 1, B 0.10, C 0.05 USD/h), and slack until due dates."),
    ] = "B-loose"
    load: Annotated[
        float, typer.Option("--load", help="GPU time that arrives, over all there is.", min=0.05, max=3.0)
    ] = 0.9
    data_gb: Annotated[
        float | None, typer.Option("--data-gb", help="Median of a job's data.", min=0.0, max=1e6, show_default="20")
    ] = None
    egress: Annotated[
        float | None, typer.Option("--egress", help="USD per GB moved.", min=0.0, max=100.0, show_default="0.05")
    ] = None
    seed: Seed = 0
    form: FormatOption = Format.TABLE

    def terms(self) -> "Terms":
        """Return the terms of the regime, with the given data volume and egress price."""
        from dataclasses import replace

        from pipelines.simulation.sites.places import REGIMES

        terms = REGIMES[self.regime]
        return replace(
            terms,
            data_gb=terms.data_gb if self.data_gb is None else max(self.data_gb, 1e-9),
            egress_usd_per_gb=terms.egress_usd_per_gb if self.egress is None else self.egress,
        )

    def made(self, *periods: str) -> "tuple[tuple[Place, ...], list[Weeks]]":
        """Return the sites, and a batch of weeks of each period."""
        from pipelines.models.sites.recorded import PERIODS, batch, pool_of
        from pipelines.settings import load_settings
        from pipelines.simulation.sites.places import places_of

        if self.sites and self.zone:
            raise BadUsage("--zone: found with --sites, expected one of them; the file names the zones")
        folder = self.grid or load_settings().energy / "grid"
        places = places_of(folder, self.zone or (), sites=self.sites, year=self.year)
        with opened(self.lake, self.trace) as (lake, trace):
            pool, note = pool_of(lake.table("jobs", trace, self.cluster).collect())
        say(f"note: {trace}: {note}")
        say(f"note: sites: {'; '.join(map(str, places))}")
        terms = self.terms()
        return places, [
            batch(places, pool, terms, PERIODS[name], seed=self.seed, load=self.load, draws=4 if name == "tune" else 1)
            for name in periods
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The file that training writes."""

    out: Annotated[Path, typer.Option("--out", help="File of the policy.")] = POLICY


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The policy to evaluate."""

    policy: Annotated[Path, typer.Option("--policy", help="File of a policy, written by `taut sites train`.")] = POLICY


def simulate(world: World) -> None:
    """Simulate the rules on weeks of October to December: utility, energy, carbon, money, GPU use and misses."""
    from pipelines.models.sites.judging import RULES, judged
    from scheduler_core.planning.sites import policy

    places, (weeks,) = world.made("judge")
    emit(means(list(judged(places, weeks, {name: policy(name) for name in RULES}, ()))), world.form)


def train(world: World, written: Written) -> None:
    """Train a scorer on January to August, tune a rolling plan on September, and write the better one of September."""
    from modelserve.bundle.routing_policy import write_routing_policy
    from pipelines.models.sites.judging import routing_policy
    from pipelines.models.sites.training import trained_scorer, tuned_rolling, usd_of
    from scheduler_core.planning.sites import policy

    try:
        written.out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadUsage(f"--out {written.out}: {error.strerror}; name a file in a folder that can be written") from error
    if written.out.is_dir():
        raise BadUsage(f"--out {written.out}: found a folder, expected the path of a file")
    _, (weeks, tuning) = world.made("train", "tune")
    tried = [policy("greedy"), tuned_rolling(tuning), trained_scorer(weeks, tuning, world.seed, talk=say)]
    usd = [float(usd_of(tuning, each).mean()) for each in tried]
    best = tried[max(range(len(tried)), key=usd.__getitem__)]
    write_routing_policy(written.out, routing_policy(weeks, best, world.terms()))
    say(f"written: {written.out}, policy {best.name}")
    emit([{"policy": each.name, "usd_per_week": value} for each, value in zip(tried, usd, strict=True)], world.form)


def evaluate(world: World, given: Given) -> None:
    """Judge a policy on October to December against every rule, the clairvoyant bound (1) and the best schedule."""
    from modelserve.bundle.routing_policy import read_routing_policy
    from pipelines.models.sites.judging import RULES, bounds_of, judged
    from scheduler_core.planning.sites import policy

    chosen = read_routing_policy(given.policy).policy
    places, (weeks,) = world.made("judge")
    policies = {name: policy(name) for name in RULES} | {chosen.name: chosen}
    emit(means(list(judged(places, weeks, policies, bounds_of(weeks, world.seed, say)))), world.form)


def means(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return the mean over weeks of each policy's figures."""
    import polars as pl

    return pl.DataFrame(rows).drop("week").group_by("policy", maintain_order=True).mean().to_dicts()


def register(app: typer.Typer) -> None:
    """Add `taut sites` to the app."""
    group = typer.Typer(no_args_is_help=True, help="Route jobs among sites in several grid zones.")
    for each in (simulate, train, evaluate):
        group.command()(command_of(each))
    app.add_typer(group, name="sites")
