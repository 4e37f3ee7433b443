"""Experiments: a few runs that differ in one thing, what they differ in, and what they came to at equal cost.

Pure: configs and curves in, plain data out. The rule is that of a fair comparison: change one thing, keep start and
seed, and compare where both have spent the same, in generated tokens. This module loads no torch.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grpo_core.comparison import first_reach, interpolate, interval_mean
from grpo_core.live.config import RunConfig, with_recipe
from grpo_core.messages import InputError

FEWEST, MOST = 2, 4
"""How many runs one experiment compares."""
GENERATED = "generated_tokens"
AXES = {"step": "step", "seconds": "train_seconds", "tokens": GENERATED}
"""What runs are compared by, and the curve that counts it: steps, seconds of training, sampled tokens."""
RECENT = 0.1
"""The table's training metrics are means over this last share of the cost."""
HALF = 0.5
UNCOUNTED = ("note", "pace", "steps", "checkpoint_every")
"""Settings that do not change what is learned up to a step."""
KINDS = ("mixed", "all-right", "all-wrong", "unscored")
Settings = Mapping[str, Any]
Values = Sequence[float | None]


# What differs


def variants(config: RunConfig, knob: str, values: Sequence[Any]) -> list[RunConfig]:
    """Give a run for each value of one setting, all else equal; a recipe brings its own beta and clip range.

    ValueError for a setting or value that is not accepted, and for fewer than 2, more than 4 or equal values.
    """
    return variants_of(config, [{knob: value} for value in values])


def variants_of(config: RunConfig, changes: Sequence[Settings]) -> list[RunConfig]:
    """Give a run for each set of changed settings; as `variants`, for more than one setting."""
    if not FEWEST <= len(changes) <= MOST:
        raise InputError(
            "an experiment compares {fewest} to {most} runs, got {count}", fewest=FEWEST, most=MOST, count=len(changes)
        )
    found = [RunConfig.from_dict({**config.to_dict(), **with_recipe(own)}) for own in changes]
    for i, one in enumerate(found):
        if one in found[:i]:
            raise InputError(
                "{settings} makes a run that is there already: give values that differ", settings=_settings(changes[i])
            )
    return found


def difference(configs: Sequence[RunConfig]) -> dict[str, tuple[Any, ...]]:
    """Give the settings that are not the same in all runs, each with its value in every run."""
    table = {name: tuple(config.to_dict()[name] for config in configs) for name in RunConfig().to_dict()}
    return {name: values for name, values in table.items() if any(value != values[0] for value in values)}


def things(configs: Sequence[RunConfig]) -> tuple[str, ...]:
    """Name the things that the runs differ in and that change what is learned: one, in a fair comparison.

    A recipe and the beta, clip range and scaling that it brings are one thing. The seed is none: see cautions.
    """
    found = [name for name in difference(configs) if name not in (*UNCOUNTED, "seed")]
    if "recipe" not in found:
        return tuple(found)
    own = [with_recipe({"recipe": config.recipe}) for config in configs]

    pairs = list(zip(own, configs, strict=True))
    brought = {name for name in found if all(name in its and its[name] == getattr(one, name) for its, one in pairs)}
    return tuple(name for name in found if name == "recipe" or name not in brought)


def cautions(configs: Sequence[RunConfig], changed_later: Iterable[str] = ()) -> dict[str, tuple[str, ...]]:
    """Name what makes a comparison unfair: {"several": settings, "seed": seeds, "same": (), "later": settings}.

    several: more than one thing differs. seed: chance differs too. same: nothing does. later: settings that were
    changed while a run was going on, as the caller says.
    """
    differing, seeds, later = things(configs), difference(configs).get("seed"), tuple(changed_later)
    found: dict[str, tuple[str, ...]] = {}
    if len(differing) > 1:
        found["several"] = differing
    if seeds:
        found["seed"] = tuple(map(str, seeds))
    if not differing and not seeds and len(configs) > 1:
        found["same"] = ()
    if later:
        found["later"] = later
    return found


def changes_of(configs: Sequence[RunConfig]) -> list[dict[str, Any]]:
    """Give, for each run, its values of the settings in which it differs from the others."""
    table = {name: values for name, values in difference(configs).items() if name not in UNCOUNTED}
    named = [name for name in table if name in (*things(configs), "seed")]
    return [{name: table[name][i] for name in named} for i in range(len(configs))]


def _settings(own: Settings) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in own.items())


# What it came to


@dataclass(frozen=True)
class Track:
    """A run to compare: its curves, one list a metric, in step with each other, and its evaluations."""

    curves: Mapping[str, Values]
    evaluations: Sequence[Mapping[str, Any]] = ()

    def cost(self, by: str) -> Values:
        """The cost at the end of each step: steps, seconds of training or generated tokens."""
        return self.curves.get(AXES[by], ())

    def end(self, by: str) -> float:
        """What the run has spent so far, 0 before its first step."""
        return max((value for value in self.cost(by) if value is not None), default=0.0)

    def evaluated(self, by: str) -> list[float]:
        """The cost at which each evaluation was made."""
        steps, spent = _known(self.curves.get("step", ()), self.cost(by))
        places = [float(row["step"]) for row in self.evaluations]
        if by == "step":
            return places
        found = np.interp(places, [0.0, *steps], [0.0, *spent])
        return [float(value) for value in found]

    def scores(self, by: str, metric: str) -> tuple[list[float], list[float]]:
        """Costs and values of one metric of the evaluations, where it was measured."""
        pairs = [
            (cost, float(row[metric]))
            for cost, row in zip(self.evaluated(by), self.evaluations, strict=True)
            if row.get(metric) is not None
        ]
        return [cost for cost, _ in pairs], [value for _, value in pairs]


def track(rows: Iterable[Mapping[str, Any]]) -> Track:
    """Make a track of a run's events, oldest first, as RunStore.metrics gives them."""
    steps: list[Mapping[str, Any]] = []
    evaluations: list[Mapping[str, Any]] = []
    for row in rows:
        if row.get("event") == "command" and row.get("name") == "continued":
            steps = [one for one in steps if one["step"] <= row["step"]]
            evaluations = [one for one in evaluations if one["step"] <= row["step"]]
        {"step": steps, "eval": evaluations}.get(str(row.get("event")), []).append(row)
    names = {name for row in steps for name, value in row.items() if _is_number(value)}
    curves: dict[str, Values] = {name: [row.get(name) for row in steps] for name in names}
    curves[GENERATED] = np.cumsum([row.get("completion_tokens") or 0 for row in steps]).tolist()
    return Track(curves, evaluations)


@dataclass(frozen=True)
class Aligned:
    """Curves of several runs at the same costs: x, and for each run one list a metric, None where it has no value."""

    by: str
    x: list[float]
    runs: list[dict[str, list[float | None]]] = field(default_factory=list)


def align(tracks: Sequence[Track], by: str, metrics: Sequence[str], *, points: int = 101) -> Aligned:
    """Give curves and evaluations of several runs at equal costs, up to where the shortest run has come."""
    x = np.linspace(0.0, equal_cost(tracks, by), points)

    def values(one: Track, metric: str) -> list[float | None]:
        cost, y = one.scores(by, metric)
        if not cost:
            cost, y = _known(one.cost(by), one.curves.get(metric, ()))
        found = interpolate(cost, y, x) if cost else np.full(x.shape, np.nan)
        return [None if np.isnan(value) else float(value) for value in found]

    return Aligned(by, x.tolist(), [{metric: values(one, metric) for metric in metrics} for one in tracks])


def equal_cost(tracks: Sequence[Track], by: str) -> float:
    """Give the largest cost that every run has reached."""
    return min((one.end(by) for one in tracks), default=0.0)


def results(tracks: Sequence[Track], by: str = "tokens", cost: float | None = None) -> list[dict[str, float]]:
    """Say what each run had come to when it had spent the same; cost None: as much as every run has.

    tokens, step, seconds: what had been spent by then. accuracy (greedy) and sampled_accuracy (one sample, the
    independent success) of the held-out prompts with their intervals, on a line between two evaluations. Means over the
    last tenth of the cost: reward, advantage (mean size), length, and the shares of mixed, all-right, all-wrong and
    unscored groups. to_half: the cost at which sampled_accuracy first reached one half, inf if it has not. What is not
    known is nan.
    """
    at = equal_cost(tracks, by) if cost is None else float(cost)
    return [_result(one, by, at) for one in tracks]


def _result(one: Track, by: str, at: float) -> dict[str, float]:
    found = {name: _between(one.cost(by), one.curves.get(curve, ()), at) for name, curve in AXES.items()}
    for metric in ("accuracy", "sampled_accuracy"):
        for name in (metric, f"{metric}_low", f"{metric}_high"):
            found[name] = float(interpolate(*one.scores(by, name), at))
    recent = {name: _recent(one, by, f"groups/{name}", at) for name in KINDS}
    groups = sum(value for value in recent.values() if value == value)
    shares = {name: value / groups if groups else float("nan") for name, value in recent.items()}
    means = {"reward": "reward", "advantage": "advantages/abs_mean", "length": "completions/mean_length"}
    found |= {name: _recent(one, by, metric, at) for name, metric in means.items()}
    reached = first_reach(*one.scores(by, "sampled_accuracy"), HALF)
    return {**found, **shares, "to_half": reached if reached <= at else float("inf")}


def _recent(one: Track, by: str, metric: str, at: float) -> float:
    points = [(c, v) for c, v in zip(one.cost(by), one.curves.get(metric, ()), strict=False) if c is not None]
    values = [float("nan") if v is None else v for _, v in points]
    return interval_mean([c for c, _ in points], values, (1.0 - RECENT) * at, at)


def _between(cost: Values, values: Values, at: float) -> float:
    x, y = _known(cost, values)
    return float(interpolate([0.0, *x], [0.0, *y], at)) if x else float("nan")


def _known(cost: Values, values: Values) -> tuple[list[float], list[float]]:
    """Give the points of a curve where both cost and value are there."""
    pairs = [(c, v) for c, v in zip(cost, values, strict=False) if c is not None and v is not None]
    return [float(c) for c, _ in pairs], [float(v) for _, v in pairs]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
