"""What the KL page computes, and what it says about the current group and the editable distributions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from app import lens as lenses
from app.figures.gradients import Arrow, corner
from app.lens import Distributions, Lens
from app.numbers import MINUS, plain, signed
from app.state import resized_list
from app.widgets import Question, Table
from app.words import prose
from grpo_core import batch_statistics, categorical_kl, kl_estimate, kl_gradient, kl_optimal_policy, reverse_kl_gradient
from grpo_core.kl import k3_as_written
from grpo_core.kl_gradients import (
    WEIGHTINGS,
    EstimatorMoments,
    KLExpectation,
    centred,
    estimator_moments,
    expected_kl,
    kl_descent,
    ratio_terms,
)
from grpo_core.kl_refresh import PenalisedPaths, penalised_paths
from grpo_core.policies import angle

REACH = 6.0  # the picture's widest log-ratio: a point beyond it is shown at the edge
HUGE = 15.0
NEAR = 1e-3  # a log-ratio this small: rounding is worth a look


def letters(count: int) -> list[str]:
    """Return the events' names, the first capital letters."""
    return [chr(ord("A") + i) for i in range(count)]


# Token by token


def token_points(lens: Lens) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return the group's tokens: log-ratio to the reference, chosen estimate, name. Empty without a reference."""
    if lens.batch.ref_logp is None:
        return np.array([]), np.array([]), []
    rows, columns = np.nonzero(lens.batch.mask)
    logp, ref = lens.batch.logp[rows, columns], lens.batch.ref_logp[rows, columns]
    names = [lens.group.tokens[i][k] for i, k in zip(rows, columns, strict=True)]
    return ref - logp, kl_estimate(logp, ref, estimator=lens.values["kl"]), names


def curves(lens: Lens) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return log-ratios, wide enough for slider and tokens, and the three estimators there."""
    d, _, _ = token_points(lens)
    wanted = max(1.5, 1.15 * abs(float(lens.values["d"])), *(1.05 * abs(d)))
    grid = np.linspace(-1.0, 1.0, 161) * min(wanted, REACH)
    return grid, lenses.kl_at(grid)


def at(lens: Lens) -> tuple[float, dict[str, float]]:
    """Return the slider's log-ratio and the estimators there."""
    d = float(lens.values["d"])
    return d, {name: float(values[0]) for name, values in lenses.kl_at(d).items()}


def group_mean(lens: Lens) -> float | None:
    """Return the group's mean estimate as a trainer logs it, or None without a reference."""
    return batch_statistics(lens.batch, lens.terms, lens.objective).get("kl")


def notice(lens: Lens) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    d, values = at(lens)
    numbers = {"d": signed(d, 2), **{name: plain(value) for name, value in values.items()}}
    if lens.values["beta"] == 0:
        return "beta-zero", {}
    if lens.group.ref_logp is None:
        return "no-reference", {}
    if 0 < abs(d) < NEAR:
        return "rounding", {name: tiny(value) for name, value in rounded(d).items()}
    if abs(d) > HUGE:
        return ("huge-above" if d > 0 else "huge-below"), numbers
    if abs(d) < 0.1:
        return "near", numbers
    return ("above" if d > 0 else "below"), numbers


def tiny(value: float) -> str:
    """Return a number in scientific form, however small it is."""
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}".replace("-", MINUS) if value else "0"


def rounded(d: float) -> dict[str, float]:
    """Return k3 as the core computes it, and as exp(d) - 1 - d written out in 64 and in 32 bits."""
    own = {"k3": float(lenses.kl_at(d)["k3"][0])}
    kinds = {"written64": np.float64, "written32": np.float32}
    return own | {name: float(k3_as_written(np.array([d], dtype=kind))[0]) for name, kind in kinds.items()}


def question(lens: Lens) -> Question:
    """Ask for k3 where the reference gives a token twice the probability."""
    value = float(lenses.kl_at(np.log(2.0))["k3"][0])
    return Question(prose("kl", "ask"), value, prose("kl", "worked", answer=plain(value)))


def table(lens: Lens) -> Table:
    """Return every token with its log-ratio to the reference and all three estimates."""
    d, _, names = token_points(lens)
    values = lenses.kl_at(d) if len(d) else dict.fromkeys(("k1", "k2", "k3"), d)
    rows = [
        (name, float(x), *(float(values[k][i]) for k in ("k1", "k2", "k3")))
        for i, (name, x) in enumerate(zip(names, d, strict=True))
    ]
    return Table(("token", "ref_logp - logp (nats)", "k1", "k2", "k3"), rows)


# On average, and why


def compared(lens: Lens) -> Distributions:
    """Return the two editable distributions, compared."""
    return lenses.distributions(lens.values["cur"], lens.values["ref"])


def distribution_notice(both: Distributions) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    numbers = {
        "exact": plain(both.exact, 4), "reverse": plain(both.reverse, 4),
        **{name: plain(value, 4) for name, value in both.expected.items()},
        **{f"{name}_std": plain(value, 4) for name, value in both.spread.items()},
    }  # fmt: skip
    if same(both):
        return "same", {}
    if not np.isfinite(both.exact):
        return "infinite", {}
    if np.any(both.current == 0):
        return "unseen", numbers
    return "expectation", numbers


def same(both: Distributions) -> bool:
    """Return whether the two distributions are one."""
    return bool(np.allclose(both.current, both.reference))


def positive(both: Distributions) -> bool:
    """Return whether both policies can produce every event, so that every log-ratio is a number."""
    return bool(both.current.min() > 0 and both.reference.min() > 0)


def distribution_question() -> Question:
    """Ask for an exact divergence of two events."""
    value = float(categorical_kl(np.array([0.5, 0.5]), np.array([0.9, 0.1])))
    return Question(prose("kl", "ask-distribution"), value, prose("kl", "worked-distribution", answer=plain(value)))


def distribution_table(both: Distributions) -> Table:
    """Return both distributions and the estimates event by event."""
    rows = [
        (name, float(p), float(q), *(float(both.estimates[k][i]) for k in ("k1", "k2", "k3")))
        for i, (name, p, q) in enumerate(zip(letters(len(both.current)), both.current, both.reference, strict=True))
    ]
    return Table(("event", "current", "reference", "k1", "k2", "k3"), rows)


@dataclass(frozen=True)
class Sums:
    """The terms of three sums over the events (K,): p r, p (-log r) and p (r - 1 - log r), with r = q / p."""

    ratio: np.ndarray
    k1: EstimatorMoments
    k3: EstimatorMoments

    @property
    def total(self) -> float:
        """E[r], which is 1 where the current policy can produce every event of the reference."""
        return float(self.ratio.sum())


def sums(both: Distributions) -> Sums:
    """Return the three sums behind k3."""
    p, q = both.current, both.reference
    return Sums(ratio_terms(p, q), estimator_moments(p, q, estimator="k1"), estimator_moments(p, q, estimator="k3"))


# Gradients


@dataclass(frozen=True)
class Trap:
    """The gradients of both KLs by the current policy's logits, and what an estimator's is on average, (K,) each."""

    both: Distributions
    estimator: str
    forward: np.ndarray  # of KL(current, reference)
    reverse: np.ndarray  # of KL(reference, current)
    mean: np.ndarray  # of the estimator, through samples of the current policy that are frozen


def trap(lens: Lens) -> Trap | None:
    """Return the gradients, or None where some event has probability 0."""
    both, name = compared(lens), lens.values["kl"]
    if not positive(both):
        return None
    p, q = both.current, both.reference
    return Trap(both, name, kl_gradient(p, q), reverse_kl_gradient(p, q), expected_kl(p, q, estimator=name).gradient)


ARROW = 0.3  # the longest arrow's length, in sides of the triangle


def arrows(one: Trap) -> dict[str, Arrow]:
    """Return which way a step down each gradient moves the policy, as arrows in the triangle in one scale.

    A small step -s g in the logits moves the policy by -s p (g - E_p[g]).
    """
    p = one.both.current
    ways = {name: -centred(p, getattr(one, name)) for name in ("forward", "reverse", "mean")}
    longest = max(math.hypot(*corner(way.tolist())) for way in ways.values())
    inside = min((float(np.min(p[way < 0] / -way[way < 0])) for way in ways.values() if np.any(way < 0)), default=1.0)
    scale = min(ARROW / longest, inside) if longest > 1e-12 else 0.0
    return {name: Arrow(tuple(p.tolist()), tuple((p + scale * way).tolist())) for name, way in ways.items()}


def descents(one: Trap) -> dict[str, np.ndarray]:
    """Return where steps down each KL lead, (steps, 3) each."""
    p, q = one.both.current, one.both.reference
    return {way: kl_descent(p, q, reverse=way == "reverse", learning_rate=0.5) for way in ("forward", "reverse")}


@dataclass(frozen=True)
class OffPolicy:
    """Samples of an old policy: the estimator's mean and mean gradient under each weighting, against the truth."""

    both: Distributions
    old: np.ndarray
    estimator: str
    chosen: str
    cap: float
    gradient: np.ndarray  # of KL(current, reference)
    found: Mapping[str, KLExpectation]

    @property
    def ratio(self) -> np.ndarray:
        """Current over old probability, (K,)."""
        return self.both.current / self.old

    @property
    def own(self) -> KLExpectation:
        """What the chosen weighting gives."""
        return self.found[self.chosen]

    def angle(self, weighting: str) -> float:
        """Return the angle between a weighting's mean gradient and the KL's, in degrees."""
        return angle(self.found[weighting].gradient, self.gradient)


def old_weights(lens: Lens) -> tuple[float, ...]:
    """Return the old policy's weights for as many events as are compared; the last one stands for those missing."""
    size = min(len(lens.values["cur"]), len(lens.values["ref"]))
    return resized_list(lens.values["kl_old"], size)


def off_policy(lens: Lens) -> OffPolicy | None:
    """Return the estimator under the old policy's samples, or None where some event has probability 0."""
    both, name, cap = compared(lens), lens.values["kl"], float(lens.values["kl_cap"])
    old = lenses.distributions(old_weights(lens), old_weights(lens)).current
    if not positive(both) or not old.min() > 0:
        return None
    p, q = both.current, both.reference
    found = {w: expected_kl(p, q, old, estimator=name, weighting=w, cap=cap) for w in WEIGHTINGS}
    return OffPolicy(both, old, name, lens.values["kl_w"], cap, kl_gradient(p, q), found)


# Reference refresh

RUNS = ("held", "refreshed", "smaller")


@dataclass(frozen=True)
class Refresh:
    """Three runs from one start: the reference held, refreshed every `every` steps, and held with a smaller beta."""

    start: np.ndarray
    rewards: np.ndarray
    beta: float
    smaller: float
    every: int
    rate: float
    steps: int

    @property
    def runs(self) -> tuple[tuple[float, int | None], ...]:
        """(beta, refresh every N steps) of each run, in the order of RUNS."""
        return (self.beta, None), (self.beta, self.every), (self.smaller, None)

    @cached_property
    def paths(self) -> PenalisedPaths:
        """The three runs, step by step."""
        return penalised_paths(self.start, self.rewards, runs=self.runs, learning_rate=self.rate, steps=self.steps)

    @property
    def refreshes(self) -> list[int]:
        """The steps at which the reference becomes the policy; one after the last step would change nothing."""
        return list(range(self.every, self.steps, self.every))

    def limit(self, beta: float) -> tuple[float, float]:
        """Return expected reward and KL to the start of the policy that is optimal under beta and a held reference."""
        best = kl_optimal_policy(self.start, self.rewards, beta=beta)
        return float(best @ self.rewards), float(categorical_kl(best, self.start))


def refresh(lens: Lens) -> Refresh:
    """Return the runs that the settings describe."""
    v = lens.values
    start = lenses.distributions(v["kl_p0"], v["kl_p0"]).current
    rewards = np.array(resized_list(v["kl_rw"], len(start)), dtype=float)
    return Refresh(
        start, rewards, float(v["kl_b"]), float(v["kl_bs"]), int(v["kl_n"]), float(v["kl_lr"]), int(v["kl_steps"])
    )
