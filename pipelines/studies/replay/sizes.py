"""Sizes: run-time estimates known at each job's submission, from models, from history, or exact (the oracle).

The jobs of a month are predicted by a model trained only on jobs that ended before that month. Histories contain only
jobs whose recorded end is before the submission.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from features.history import History
from pipelines.errors import BadUsage
from pipelines.models.baselines import (
    HISTORY_BASELINES,
    UNINFORMED_S,
    HistoryBaseline,
    Key,
    history_forecasts,
    key_codes,
)
from pipelines.models.examples import Examples, examples_of, task_types
from pipelines.models.fitted import FEATURES, combined, fit_runtime
from pipelines.models.metrics import FloatArray
from pipelines.models.recipes import Recipe
from pipelines.models.splits import finished, time_later
from scheduler_core.types import BoolArray, IntArray

ORACLE: Final = "oracle"
PREDICTED: Final = "predicted"
MEDIANS: Final = ("vc_gpus_median", "recent_20", "user_median", "group_median", "global_median")

LIKE_MEAN: Final = "like_mean"
"""Name of the mean over jobs with the same VC and GPUs, or the same GPUs if the trace has no VCs. Unlike the other
means it can be computed for every trace."""

MEANS: Final[dict[str, HistoryBaseline]] = {
    "user_mean": HistoryBaseline(keys=(("user",), ("cluster",))),
    "group_mean": HistoryBaseline(keys=(("group",), ("user",), ("cluster",))),
    LIKE_MEAN: HistoryBaseline(keys=(("cluster", "vc", "gpus"), ("cluster", "gpus"), ("cluster",))),
}
"""Sizes that are means over earlier jobs with the same key, by name.

Of each list of keys, the first under which an earlier job has ended is used. The mean is over all earlier jobs with
that key; the window of `HistoryBaseline` is ignored. `gpus` is the GPU count of the whole gang.
"""

LEAST_LEARNT: Final = 1000
"""Minimum number of jobs that must have ended before a month for training its model. Jobs submitted before the first
such month only fill the cluster and are not measured."""

LEAST_SPREAD: Final = 1.05
"""Smallest ratio of p90 to p50 except the oracle's: equal quantiles would count as an exact prediction."""

WITHOUT_MODEL: Final = "recent_20"
"""Baseline that `predicted` uses before the first model, and for task types with too few jobs for a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes of the replayed jobs in seconds (n,), by source: p50 and p90, the latter NaN if unknown.

    Jobs submitted from `since` on are measured. By default it is the training cut of the first model. `notes` describe
    the models.
    """

    predicted_s: dict[str, FloatArray]
    predicted_p90_s: dict[str, FloatArray]
    since: datetime
    notes: tuple[str, ...]


def sizes_of(
    jobs: pl.DataFrame,
    learnt_from: pl.DataFrame,
    sources: Sequence[str] | None = None,
    *,
    zone: str,
    since: datetime | None = None,
    seed: int = 0,
    nthread: int = 1,
    talk: Callable[[str], None] = lambda _: None,
) -> Sizes:
    """Return the sizes of the replayed jobs from these sources; by default from all for which the trace has data.

    `jobs` are canonical, each with a run time; `learnt_from` are all jobs of the trace. A month's model is trained on
    the jobs that ended before it; months begin in the time zone `zone`. From `since` on, one model predicts all; by
    default every month has its own.
    """
    known = applicable_sources(jobs)
    if unknown := sorted(set(sources or ()) - set(known)):
        raise BadUsage(f"no sizes {', '.join(unknown)} for these jobs; there are {', '.join(known)}")
    months = local_months(jobs, zone)
    cuts = [month for month in months if _ended_before(learnt_from, month) >= LEAST_LEARNT]
    asked = list(sources or known)
    if since is not None:
        ended = _ended_before(learnt_from, since)
        if PREDICTED in asked and ended < LEAST_LEARNT:
            raise BadUsage(
                f"found {ended} jobs that ended before {since:%Y-%m-%d}, and a model needs {LEAST_LEARNT}: give a "
                "later --since, or --sizes without predicted"
            )
        cuts = [*(cut for cut in cuts if cut < since), since]
    answers: dict[str, FloatArray] = {}
    p90s: dict[str, FloatArray] = {}
    medians = [name for name in MEDIANS if name in asked]
    history = history_forecasts(jobs, [*medians, WITHOUT_MODEL])
    notes = []
    for name in asked:
        if name == ORACLE:
            answers[name] = p90s[name] = jobs["run_s"].to_numpy().astype(np.float64)
            continue
        if name in MEANS:
            answers[name], p90s[name] = mean_sizes(jobs, MEANS[name].keys), np.full(jobs.height, np.nan)
        elif name == PREDICTED:
            fallback = _seconds(history[WITHOUT_MODEL].p50, history[WITHOUT_MODEL].p90)
            learnt = learned(jobs, learnt_from, cuts, seed=seed, nthread=nthread, talk=talk)
            answers[name], p90s[name] = np.where(np.isnan(learnt), fallback, learnt)
            notes.append(_models_note(jobs, learnt[0], cuts, fixed=since is not None))
        else:
            answers[name], p90s[name] = _seconds(history[name].p50, history[name].p90)
        p90s[name] = np.maximum(p90s[name], LEAST_SPREAD * answers[name])
    first = cuts[0] if cuts else months[0]
    return Sizes(predicted_s=answers, predicted_p90_s=p90s, since=since or first, notes=tuple(notes))


def _seconds(p50: FloatArray, p90: FloatArray) -> FloatArray:
    """Return quantiles of log run time (n,) in seconds (2, n)."""
    seconds: FloatArray = np.exp(np.array([p50, p90]))
    return seconds


def applicable_sources(jobs: pl.DataFrame) -> list[str]:
    """Return the sources that the trace allows: most means and medians need values in their first key."""
    filled = {column for column in jobs.columns if jobs[column].null_count() < jobs.height} | {"gpus"}
    chains = {name: HISTORY_BASELINES[name] for name in MEDIANS} | MEANS
    told = [
        name for name, chain in chains.items() if name in (WITHOUT_MODEL, LIKE_MEAN) or set(chain.keys[0]) <= filled
    ]
    return [PREDICTED, *told, ORACLE]


def local_months(jobs: pl.DataFrame, zone: str) -> list[datetime]:
    """Return the first moments of the months in which jobs were submitted, ascending, in a time zone."""
    begins = jobs["submit_ts"].dt.convert_time_zone(zone).dt.truncate("1mo")
    return begins.dt.convert_time_zone("UTC").unique().sort().to_list()


def learned(
    jobs: pl.DataFrame,
    learnt_from: pl.DataFrame,
    cuts: Sequence[datetime],
    *,
    seed: int,
    nthread: int,
    talk: Callable[[str], None],
) -> FloatArray:
    """Return p50 and p90 in seconds of each job (2, n) from the last model before its submission; NaN without one.

    `cuts` ascend: each model is trained on jobs that ended before its cut, and used until the next cut.
    """
    answers = np.full((2, jobs.height), np.nan)
    if not cuts:
        return answers
    keys = ["trace", "cluster", "job_id", "role"]
    numbered = jobs.select(*keys).with_row_index("replayed")
    # Jobs submitted after the last replayed job are not in the history of any replayed job.
    pool = learnt_from.filter(pl.col("submit_ts") <= jobs["submit_ts"].max())
    history, recipe = History.of(pool), Recipe()
    for task_type in task_types(jobs, "kind"):
        examples = examples_of(pool, None, task_type, by="kind", history=history, names=FEATURES, relative=True)
        place = examples.jobs.select(keys).join(numbered, on=keys, how="left", maintain_order="left")["replayed"]
        replayed = place.cast(pl.Int64).fill_null(-1).to_numpy()
        for begin, end in pairwise([*cuts, datetime.max.replace(tzinfo=cuts[0].tzinfo)]):
            rows, seconds = _period(examples, replayed >= 0, begin, end, recipe, seed=seed, nthread=nthread)
            answers[:, replayed[rows]] = seconds
            talk(f"{task_type}: {len(rows)} jobs from {begin:%Y-%m-%d} on answered by what had ended before")
    return answers


def _period(
    examples: Examples,
    wanted: BoolArray,
    begin: datetime,
    end: datetime,
    recipe: Recipe,
    *,
    seed: int,
    nthread: int,
) -> tuple[IntArray, FloatArray]:
    """Return the `wanted` rows (k,) submitted in [begin, end), and p50 and p90 in seconds by a model cut at `begin`."""
    split = time_later(examples.jobs, until=begin)
    in_period = wanted & (examples.jobs["submit_ts"] < end).to_numpy()
    asked = split.test[in_period[split.test]]
    if len(asked) == 0 or len(split.train) < LEAST_LEARNT or len(split.stop) == 0 or len(split.fit) == 0:
        return np.empty(0, dtype=np.int64), np.empty((2, 0))
    split = replace(split, test=asked)
    fitted = fit_runtime(examples, split, recipe, until=begin, seed=seed, nthread=nthread)
    forecast = combined(examples, fitted)
    return asked, _seconds(forecast.p50, forecast.p90)


def _ended_before(jobs: pl.DataFrame, moment: datetime) -> int:
    return jobs.filter(pl.col("end_ts") < moment).height


def _models_note(jobs: pl.DataFrame, learnt: FloatArray, cuts: Sequence[datetime], *, fixed: bool) -> str:
    without = int(np.isnan(learnt).sum())
    if not cuts:
        return f"no month had {LEAST_LEARNT} ended jobs before it: every size of 'predicted' is of {WITHOUT_MODEL}"
    begins = ", ".join(f"{cut:%Y-%m-%d}" for cut in cuts)
    return (
        f"predicted: {'the last model fixed, earlier ones' if fixed else 'one model'} per month, learnt from jobs that "
        f"had ended before it began (UTC {begins}); "
        f"{without} of {jobs.height} jobs came before or had no end and took {WITHOUT_MODEL}"
    )


def mean_sizes(jobs: pl.DataFrame, keys: tuple[Key, ...]) -> FloatArray:
    """Return for each job (n,) the mean run time in seconds of earlier jobs with the same key.

    The first of `keys` under which a job has ended is taken. Only finished jobs that ended strictly before the
    `submit_ts` of a job count; if there are none, its size is `UNINFORMED_S`.
    """
    sizes = np.full(jobs.height, UNINFORMED_S[0.5])
    for key in reversed(keys):
        means = _ended_means(jobs, key)
        sizes = np.where(np.isnan(means), sizes, means)
    return sizes


def _ended_means(jobs: pl.DataFrame, key: Key) -> FloatArray:
    """Return the mean run time of jobs with the same key that ended before each submission (n,), NaN if none had."""
    coded = jobs.select("submit_ts", "end_ts", "run_s", ended=finished(), code=pl.Series(key_codes(jobs, key)))
    known = coded.filter(pl.col("code") >= 0)
    past = known.filter("ended").sort("end_ts").select("code", "end_ts", mean_s=_running_mean("run_s").over("code"))
    arriving = coded.with_row_index("row").select("row", "code", "submit_ts").sort("submit_ts")
    sizes = arriving.join_asof(
        past, left_on="submit_ts", right_on="end_ts", by="code", strategy="backward", allow_exact_matches=False
    )
    means: FloatArray = sizes.sort("row")["mean_s"].fill_null(float("nan")).to_numpy()
    return means


def _running_mean(name: str) -> pl.Expr:
    return pl.col(name).cum_sum() / pl.col(name).cum_count()
