"""`taut sites simulate | train | evaluate`: route a trace's jobs among sites in several grid zones.

Slow imports happen inside the functions.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pipelines.cli.commands import Commands, Group, named
from pipelines.cli.failures import out_written
from pipelines.cli.options import CLUSTER, FORM, SEED, Format, InLake, emit, say
from pipelines.errors import BadUsage
from pipelines.options import option

if TYPE_CHECKING:
    from pipelines.simulation.sites.weeks import Place, Terms, Weeks

POLICY: Final = Path("data/sites/policy.json")


@dataclass(frozen=True, kw_only=True)
class World(InLake):
    """Options for jobs, sites and the terms of the utility."""

    cluster: str | None = CLUSTER
    grid: Path | None = option(None, "Folder of hourly series, one subfolder a zone.", shown="grid of TAUT_ENERGY")
    zone: tuple[str, ...] = option((), "Zone of a site (repeat it, 2 to 8).", shown="six zones, 320 GPUs")
    sites: Path | None = option(
        None, "TOML file of own sites: zone, gpus, pue and gpu_type of each.", shown="sizes by zone, A100"
    )
    year: int | None = option(
        None, "Year of the series to use.", minimum=1970, maximum=2199, shown="the year of the files"
    )
    regime: Literal["A", "B-loose", "B-tight", "C-loose"] = option(
        "B-loose", "Worth of GPU time (A 1, B 0.10, C 0.05 USD/h), and slack until due dates."
    )
    load: float = option(0.9, "GPU time that arrives, over all there is.", minimum=0.05, maximum=3.0)
    data_gb: float | None = option(None, "Median of a job's data.", minimum=0.0, maximum=1e6, shown="20")
    egress: float | None = option(None, "USD per GB moved.", minimum=0.0, maximum=100.0, shown="0.05")
    seed: int = SEED

    def terms(self) -> "Terms":
        """Return the terms of the regime, with the given data volume and egress price."""
        from dataclasses import replace

        from pipelines.simulation.sites.weeks import REGIMES

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
        from pipelines.simulation.sites.weeks import places_of

        if self.sites and self.zone:
            raise BadUsage("--zone: found with --sites, expected one of them; the file names the zones")
        folder = self.grid or load_settings().energy / "grid"
        places = places_of(folder, self.zone, sites=self.sites, year=self.year)
        with self.opened() as (lake, trace):
            pool, note = pool_of(lake.table("jobs", trace, self.cluster).collect())
        say(f"note: {trace}: {note}")
        say(f"note: sites: {'; '.join(map(str, places))}")
        terms = self.terms()
        return places, [
            batch(places, pool, terms, PERIODS[name], seed=self.seed, load=self.load, draws=4 if name == "tune" else 1)
            for name in periods
        ]


def simulate(world: World, form: Format = FORM) -> None:
    """Simulate the rules on weeks of October to December: utility, energy, carbon, money, GPU use and misses."""
    from pipelines.models.sites.judging import RULES, judged
    from scheduler_core.planning.sites import policy

    places, (weeks,) = world.made("judge")
    emit(means(list(judged(places, weeks, {name: policy(name) for name in RULES}, ()))), form)


def train(world: World, out: Path = option(POLICY, "File of the policy."), form: Format = FORM) -> None:
    """Train a scorer on January to August, and write it, or greedy if that is better on September."""
    from modelserve.bundle.routing_policy import write_routing_policy
    from pipelines.models.sites.judging import routing_policy
    from pipelines.models.sites.training import trained_scorer, usd_of
    from scheduler_core.planning.sites import policy

    with out_written(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    if out.is_dir():
        raise BadUsage(f"--out {out}: found a folder, expected the path of a file")
    _, (weeks, tuning) = world.made("train", "tune")
    tried = [policy("greedy"), trained_scorer(weeks, tuning, world.seed, talk=say)]
    usd = [float(usd_of(tuning, each).mean()) for each in tried]
    best = tried[max(range(len(tried)), key=usd.__getitem__)]
    write_routing_policy(out, routing_policy(weeks, best, world.terms()))
    say(f"written: {out}, policy {best.name}")
    emit([{"policy": each.name, "usd_per_week": value} for each, value in zip(tried, usd, strict=True)], form)


def evaluate(
    world: World,
    policy: Path = option(POLICY, "File of a policy, written by `taut sites train`."),
    form: Format = FORM,
) -> None:
    """Judge a policy on October to December against every rule, the clairvoyant bound (1) and the best schedule."""
    from modelserve.bundle.routing_policy import read_routing_policy
    from pipelines.models.sites.judging import RULES, bounds_of, judged
    from scheduler_core.planning.sites import policy as rule

    chosen = read_routing_policy(policy).policy
    places, (weeks,) = world.made("judge")
    policies = {name: rule(name) for name in RULES} | {chosen.name: chosen}
    emit(means(list(judged(places, weeks, policies, bounds_of(weeks, world.seed, say)))), form)


def means(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return the mean over weeks of each policy's figures."""
    import polars as pl

    return pl.DataFrame(rows).drop("week").group_by("policy", maintain_order=True).mean().to_dicts()


COMMANDS: Final[Commands] = {
    "sites": Group(help="Route jobs among sites in several grid zones.", commands=named(simulate, train, evaluate))
}
