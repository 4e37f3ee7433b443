"""What the Gradients page computes: exact expected gradients of estimators on policies small enough to list."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from app.figures.gradients import Arrow, corner
from app.lens import Lens
from app.words import t
from grpo_core import AdvantageSpec
from grpo_core.policies import (
    GradientReport,
    Outcomes,
    baseline_report,
    expected_reward,
    gradient_report,
    group_estimates,
    log_softmax,
    optimal_baseline,
    sequence_outcomes,
    softmax_outcomes,
    true_gradient,
)

MOST_GROUPS = 4000  # more would not follow a slider
MOST_ACTIONS = 8
MOST_STEPS = 8

_SPECS: Mapping[str, AdvantageSpec] = {
    "mean": AdvantageSpec(scale="none"),
    "loo": AdvantageSpec(estimator="leave_one_out"),
    "std": AdvantageSpec(ddof=0, eps=0.0),
    "trl": AdvantageSpec(ddof=1, eps=1e-4),
    "greedy": AdvantageSpec(estimator="greedy_baseline"),
    "best": AdvantageSpec(estimator="best_of_group", ddof=0, eps=0.0),
}
ESTIMATORS = ("reinforce", "critic", *_SPECS)
FACETS = ("reinforce", "mean", "loo", "std")  # always shown beside each other


def spec_of(name: str) -> AdvantageSpec | None:
    """Return the advantage that an estimator uses, or None if it subtracts a number fixed before sampling."""
    return _SPECS.get(name)


def title(name: str) -> str:
    """Return an estimator's name as text."""
    return t(f"param.gest.{name}")


@dataclass(frozen=True)
class Bandit:
    """One prompt with K actions: their probabilities and rewards, and the group size G."""

    probs: tuple[float, ...]
    rewards: tuple[float, ...]
    size: int

    @property
    def outcomes(self) -> Outcomes:
        """The policy's outcomes."""
        return softmax_outcomes(np.log(self.probs), names=self.names)

    @property
    def names(self) -> list[str]:
        """The actions' letters."""
        return letters(len(self.probs))

    @property
    def groups(self) -> int:
        """How many different groups there are."""
        return group_count(len(self.probs), self.size)

    @property
    def largest(self) -> int:
        """The largest group size that can still be listed here."""
        return largest_size(len(self.probs))


def letters(count: int) -> list[str]:
    """Return the first capital letters."""
    return [chr(ord("A") + i) for i in range(count)]


def group_count(outcomes: int, size: int) -> int:
    """Return the number of multisets of `size` out of `outcomes`."""
    return math.comb(outcomes + size - 1, size)


def largest_size(outcomes: int) -> int:
    """Return the largest group size whose groups can be listed while a slider moves."""
    size = 1
    while group_count(outcomes, size + 1) <= MOST_GROUPS and size < 64:
        size += 1
    return size


def bandit(lens: Lens) -> Bandit:
    """Return the one-step policy that the settings describe."""
    count = min(len(lens.values["pi"]), len(lens.values["rw"]), MOST_ACTIONS)
    return Bandit(
        normalised(lens.values["pi"][:count]), tuple(map(float, lens.values["rw"][:count])), lens.values["gg"]
    )


def normalised(weights: Sequence[float]) -> tuple[float, ...]:
    """Return weights as probabilities."""
    total = sum(weights)
    return tuple(float(w) / total for w in weights)


def report(name: str, problem: Bandit) -> GradientReport:
    """Return an estimator's exact expectation and covariance on a one-step policy."""
    return _report(name, problem)


@lru_cache(maxsize=512)
def _report(name: str, problem: Bandit) -> GradientReport:
    return estimate(name, problem.outcomes, problem.rewards, size=problem.size)


def estimate(
    name: str,
    outcomes: Outcomes,
    rewards: Sequence[float],
    *,
    size: int,
    aggregation: str = "sequence_sum",
    constant: float | None = None,
) -> GradientReport:
    """Return the exact report of one estimator on any listed policy."""
    more = {"group_size": size, "aggregation": aggregation, "constant": constant}
    if name == "reinforce":
        return baseline_report(outcomes, rewards, baseline=0.0, **more)
    if name == "critic":
        return baseline_report(outcomes, rewards, baseline=expected_reward(outcomes, rewards), **more)
    return gradient_report(outcomes, rewards, _SPECS[name], **more)


def alone(name: str, size: int) -> bool:
    """Return whether an estimator compares within its group, and the group is a single completion."""
    return size == 1 and name in _SPECS and name != "greedy"


def bias(found: GradientReport) -> float:
    """Return the length of the bias, the expected minus the true gradient."""
    return float(np.linalg.norm(found.bias))


def turned(found: GradientReport) -> bool:
    """Return whether the expected gradient points elsewhere than the true one."""
    return not math.isnan(found.cosine) and found.cosine < 1 - 1e-9


def angle(found: GradientReport) -> float:
    """Return the angle between expected and true gradient in degrees, nan if one of them is zero."""
    return math.degrees(math.acos(max(-1.0, min(1.0, found.cosine)))) if not math.isnan(found.cosine) else math.nan


@dataclass(frozen=True)
class Listed:
    """One group with everything that makes up an expectation: its actions, its probability, what it estimates."""

    actions: str
    chance: float
    advantages: tuple[float, ...]
    estimate: tuple[float, ...]


def listed(name: str, problem: Bandit) -> list[Listed]:
    """Return every group of a one-step policy with its advantages and its gradient estimate, the likeliest first."""
    outcomes, spec = problem.outcomes, _SPECS.get(name)
    base = expected_reward(outcomes, problem.rewards) if name == "critic" else 0.0
    found = group_estimates(outcomes, problem.rewards, spec, baseline=base, group_size=problem.size)
    rows = [
        Listed(", ".join(problem.names[k] for k in members), float(chance), tuple(a.tolist()), tuple(g.tolist()))
        for members, chance, a, g in zip(found.groups, found.chances, found.advantages, found.estimates, strict=True)
    ]
    return sorted(rows, key=lambda row: -row.chance)


# Group sizes


@dataclass(frozen=True)
class Sizes:
    """What the group size does to an estimator: for each size in `sizes` its factor, its cosine and its variance."""

    name: str
    sizes: tuple[int, ...]
    scale: tuple[float, ...]
    cosine: tuple[float, ...]
    variance: tuple[float, ...]


def sizes(problem: Bandit, names: Sequence[str] = ("mean", "loo", "std")) -> list[Sizes]:
    """Return the curves over the group size for several estimators."""
    largest = min(problem.largest, 16)
    steps = tuple(range(1, largest + 1))
    rows = []
    for name in names:
        found = [report(name, Bandit(problem.probs, problem.rewards, size)) for size in steps]
        rows.append(
            Sizes(
                name,
                steps,
                tuple(r.scale for r in found),
                tuple(r.cosine for r in found),
                tuple(r.variance for r in found),
            )
        )
    return rows


# Sequences of different lengths


@dataclass(frozen=True)
class Chain:
    """A policy that ends at each of M positions with probability `stop`; the last outcome is cut off at M tokens."""

    stop: tuple[float, ...]
    rewards: tuple[float, ...]
    size: int

    @property
    def outcomes(self) -> Outcomes:
        """The policy's outcomes, in the order of `places`."""
        logits = [[math.log1p(-p), math.log(p)] for p in self.stop]
        return sequence_outcomes(logits, tokens=["a", "EOS"], max_length=len(self.stop), sharing="position")

    @property
    def places(self) -> list[int]:
        """For each outcome of the core the place it has here: ended at position 1, 2, ..., M, then cut off."""
        outcomes = self.outcomes
        count = len(self.stop)
        return [
            count if cut else int(length) - 1 for length, cut in zip(outcomes.lengths, outcomes.truncated, strict=True)
        ]

    @property
    def core_rewards(self) -> list[float]:
        """The rewards in the core's order."""
        return [self.rewards[place] for place in self.places]

    @property
    def groups(self) -> int:
        """How many different groups there are."""
        return group_count(len(self.stop) + 1, self.size)


def chain(lens: Lens) -> Chain:
    """Return the sequence policy that the settings describe; missing rewards repeat the last one."""
    stop = tuple(map(float, lens.values["stop"][:MOST_STEPS]))
    rewards = (*_filled(lens.values["srw"], len(stop)), lens.values["rcut"])
    return Chain(stop, tuple(map(float, rewards)), lens.values["gg"])


REDUCTIONS = ("sequence_sum", "sequence_mean", "constant", "token_mean")


def reduced(name: str, problem: Chain) -> dict[str, GradientReport]:
    """Return an estimator's report under each reduction; the constant is the longest length."""
    outcomes, longest = problem.outcomes, float(len(problem.stop))
    return {
        mode: estimate(name, outcomes, problem.core_rewards, size=problem.size, aggregation=mode, constant=longest)
        for mode in REDUCTIONS
    }


def ending(gradient: np.ndarray) -> np.ndarray:
    """Return a chain's gradient as one number for each position: the derivative by the logit of ending there, (M,)."""
    return np.asarray(gradient).reshape(-1, 2)[:, 1]


def paid(lens: Lens) -> tuple[Chain, np.ndarray]:
    """Return the chain and what each token of each outcome is paid, (K, T): for going on, or for ending."""
    problem = chain(lens)
    outcomes, steps = problem.outcomes, len(problem.stop)
    on, end = (_filled(lens.values[name], steps) for name in ("paya", "pays"))
    result = np.zeros(outcomes.mask.shape)
    for k, tokens in enumerate(outcomes.tokens):
        for position, token in enumerate(tokens):
            result[k, position] = end[position] if token == "EOS" else on[position]
    return problem, result


def _filled(values: Sequence[float], count: int) -> tuple[float, ...]:
    return (tuple(values) + (values[-1],) * count)[:count]


# The simplex of three actions

_FIRST_RATE = 0.1  # where the search for a step's learning rate starts
_LONGEST = 0.02  # of one step of a path
_ARRIVED = 0.98  # a path ends when one action has this probability


def moved(probs: np.ndarray, gradient: np.ndarray, *, length: float) -> np.ndarray:
    """Return the policy after a step up the gradient of its logits, `length` long in the triangle; itself if 0.

    Softmax of logits plus rate times gradient, the rate chosen so that the step has that length.
    """
    logits, size = np.log(probs), float(np.linalg.norm(gradient))
    if size < 1e-12:
        return probs
    rate, after = _FIRST_RATE / size, probs
    for _ in range(6):
        after = np.exp(log_softmax(logits + rate * gradient))
        gone = _distance(probs, after)
        if gone < 1e-12 or abs(gone - length) < 0.02 * length:
            break
        rate *= float(np.clip(length / gone, 0.1, 100.0))
    return after


def _distance(first: np.ndarray, second: np.ndarray) -> float:
    """Return how far apart two policies lie in the triangle."""
    (x0, y0), (x1, y1) = corner(first), corner(second)
    return float(np.hypot(x1 - x0, y1 - y0))


def _true(name: str, problem: Bandit, probs: np.ndarray) -> np.ndarray:
    return true_gradient(softmax_outcomes(np.log(probs)), problem.rewards)


def _expected(name: str, problem: Bandit, probs: np.ndarray) -> np.ndarray:
    return estimate(name, softmax_outcomes(np.log(probs)), problem.rewards, size=problem.size).expected


def field(name: str, problem: Bandit, *, steps: int = 8) -> list[tuple[Arrow, Arrow]]:
    """Return arrows all over the triangle: up the true gradient, and up what the estimator is on average."""
    rows = []
    for i in range(1, steps - 1):
        for j in range(1, steps - i):
            probs = np.array([steps - i - j, i, j]) / steps
            rows.append(arrows(name, problem, probs, length=0.055))
    return rows


def arrows(name: str, problem: Bandit, probs: np.ndarray, *, length: float) -> tuple[Arrow, Arrow]:
    """Return both directions at one policy as arrows of equal length."""
    start = tuple(probs.tolist())
    true, expected = (moved(probs, way(name, problem, probs), length=length) for way in (_true, _expected))
    return Arrow(start, tuple(true.tolist())), Arrow(start, tuple(expected.tolist()))


def paths(name: str, problem: Bandit, *, steps: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Return where the true gradient leads, and where the estimator's mean leads, step by step, (steps, 3) each."""
    return _path(_true, name, problem, steps), _path(_expected, name, problem, steps)


def _path(way: Callable[..., np.ndarray], name: str, problem: Bandit, steps: int) -> np.ndarray:
    points, length, before = [np.asarray(problem.probs)], _LONGEST, None
    for _ in range(steps):
        here = points[-1]
        after = moved(here, way(name, problem, here), length=length)
        if after.max() > _ARRIVED or _distance(here, after) < 1e-6:
            break
        points.append(after)
        way_gone = (after - here) / length
        # Where the way bends sharply, shorter steps keep the path from zigzagging across it.
        straight = before is None or float(way_gone @ before) > 0.9 * float(
            np.linalg.norm(way_gone) * np.linalg.norm(before)
        )
        length, before = (min(1.4 * length, _LONGEST) if straight else max(0.4 * length, 0.05 * _LONGEST)), way_gone
    return np.array(points)


@lru_cache(maxsize=32)
def triangle(name: str, problem: Bandit) -> tuple[Any, Any, Any]:
    """Return field, paths and the arrows at the current policy, for the picture of the simplex."""
    here = arrows(name, problem, np.asarray(problem.probs), length=0.16)
    return field(name, problem), paths(name, problem), here


# Baselines


@dataclass(frozen=True)
class Baselines:
    """The variance of (r - b) grad log p over baselines b, and the baselines with a name."""

    b: np.ndarray
    variance: np.ndarray
    mean: float
    best: float
    own: float
    variances: Mapping[str, float]


def baselines(lens: Lens) -> Baselines:
    """Return the variance of one completion's estimate against its baseline."""
    problem = bandit(lens)
    outcomes, rewards = problem.outcomes, problem.rewards
    mean, best = expected_reward(outcomes, rewards), optimal_baseline(outcomes, rewards)
    own = mean if lens.values["gbase"] is None else float(lens.values["gbase"])
    ends = np.array([mean, best, own, 0.0])
    pad = 0.6 * max(float(np.ptp(ends)), 0.2)
    b = np.linspace(float(ends.min()) - pad, float(ends.max()) + pad, 61)

    def variance(value: float) -> float:
        return baseline_report(outcomes, rewards, baseline=value).variance

    named = {"own": own, "mean": mean, "best": best, "none": 0.0}
    return Baselines(
        b, np.array([variance(x) for x in b]), mean, best, own, {name: variance(x) for name, x in named.items()}
    )
