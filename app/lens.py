"""The current group seen through the current settings: every number that a page shows, computed by grpo_core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from app import params
from grpo_core import (
    AdvantageSpec,
    Group,
    GroupAdvantages,
    GroupBatch,
    LossTerms,
    Objective,
    categorical_kl,
    clipped_slope,
    clipped_surrogate,
    importance_ratio,
    kl_estimate,
    loss_terms,
    pooled_mean,
    token_weights,
    weighted_sum,
)
from grpo_core.ratios import LOG_RATIO_CAP
from grpo_core.token_gradients import TokenGradients, gradients_of


@dataclass(frozen=True)
class Lens:
    """A group with everything the settings make of it. `no_reference`: beta was set, but the group has no reference."""

    group: Group
    values: Mapping[str, Any]
    spec: AdvantageSpec
    objective: Objective
    batch: GroupBatch
    scores: GroupAdvantages
    terms: LossTerms
    no_reference: bool

    @property
    def advantages(self) -> np.ndarray:
        """The advantages (G,)."""
        return self.scores.advantages

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens that train, for each completion."""
        return self.group.lengths

    @cached_property
    def gradients(self) -> TokenGradients:
        """What the loss's derivative is by each token's log-probability."""
        return gradients_of(self.terms)

    def row(self, values: Any, index: int) -> np.ndarray:
        """Return one completion's own tokens of a (B, T) array."""
        return np.asarray(values)[index, : len(self.group.tokens[index])]


def look(group: Group, values: Mapping[str, Any]) -> Lens:
    """Return the group seen through the settings."""
    return look_under(group, values, params.advantage_spec(values), params.objective(values, longest=longest(group)))


def look_under(group: Group, values: Mapping[str, Any], spec: AdvantageSpec, objective: Objective) -> Lens:
    """Return the group seen through another advantage definition and another objective."""
    no_reference = objective.beta > 0 and group.ref_logp is None
    if no_reference:
        objective = objective.replace(beta=0.0)
    greedy = float(values["greedy"])
    batch = GroupBatch.from_groups([group], spec, greedy_rewards=[greedy])
    if objective.surrogate == "clip_cov":  # it drops tokens at random: one draw, chosen by its number
        batch = replace(batch, uniform=np.random.default_rng(values["draw"]).random(batch.logp.shape))
    scores = group.advantages(spec, greedy_reward=greedy)
    return Lens(group, values, spec, objective, batch, scores, loss_terms(batch, objective), no_reference)


def longest(group: Group) -> int:
    """Return the tokens of the longest completion, at least 1."""
    return max(1, *group.lengths) if group.size > 1 else max(1, group.lengths[0])


def clip_range(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the clip range as the keyword arguments of the surrogate functions."""
    return {"epsilon_low": values["eps_low"], "epsilon_high": values["eps_high"], "delta": values["delta"]}


@dataclass(frozen=True)
class Curve:
    """Objective and slope against the ratio, for one advantage."""

    advantage: float
    ratio: np.ndarray
    objective: np.ndarray
    slope: np.ndarray


def clip_curve(advantage: float, values: Mapping[str, Any], *, high: float) -> Curve:
    """Return the clipped surrogate and its slope on a fine grid that holds the kinks exactly."""
    clip = clip_range(values)
    kinks = [1 - clip["epsilon_low"], 1 + clip["epsilon_high"], *([clip["delta"]] if clip["delta"] else [])]
    inside = [k + side for k in kinks for side in (-1e-9, 0.0, 1e-9) if 0 <= k + side <= high]
    ratio = np.unique(np.concatenate([np.linspace(0.0, high, 61), inside]))
    a = np.full_like(ratio, advantage)
    return Curve(advantage, ratio, clipped_surrogate(ratio, a, **clip), clipped_slope(ratio, a, **clip))


def at_ratio(ratio: float, advantage: float, values: Mapping[str, Any]) -> tuple[float, float]:
    """Return objective and slope at one ratio."""
    r, a = np.array([ratio]), np.array([advantage])
    clip = clip_range(values)
    return float(clipped_surrogate(r, a, **clip)[0]), float(clipped_slope(r, a, **clip)[0])


def levels(group: Group) -> dict[str, np.ndarray]:
    """Return the ratios at every level: "token" (B, T), "sequence" and "trajectory" (B, 1)."""
    batch = GroupBatch.from_groups([group], AdvantageSpec())
    return {
        level: importance_ratio(batch.logp, batch.old_logp, batch.mask, level=level)
        for level in ("token", "sequence", "trajectory")
    }


def drift(token_ratio: float, tokens: int) -> dict[str, float]:
    """Return the three ratios of a completion whose every token has the same ratio."""
    logp = np.full((1, tokens), np.log(token_ratio))
    mask = np.ones((1, tokens), dtype=bool)
    return {
        level: float(importance_ratio(logp, np.zeros_like(logp), mask, level=level)[0, 0])
        for level in ("token", "sequence", "trajectory")
    }


def is_capped(ratio: float) -> bool:
    """Return whether the core kept this ratio from leaving the range of numbers (see grpo_core.ratios)."""
    return abs(float(np.log(ratio))) >= LOG_RATIO_CAP * (1 - 1e-12)


def drift_curve(token_ratio: float, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Return lengths and the trajectory ratio at each of them."""
    lengths = np.unique(np.linspace(1, max(tokens, 2), 60).astype(int))
    return lengths, np.array([drift(token_ratio, int(n))["trajectory"] for n in lengths])


def graph_slopes(advantage: float, values: Mapping[str, Any], *, step: float = 1e-5) -> dict[str, float]:
    """Return the value at ratio 1 and its slope in logp, with a frozen old policy and with one that moves along.

    Measured by moving logp a little both ways: frozen, the old log-probability stays; shared, it is the same number and
    moves too, so that the ratio never leaves 1.
    """

    def value(logp: float, old: float) -> float:
        one = np.ones((1, 1), dtype=bool)
        ratio = importance_ratio(np.array([[logp]]), np.array([[old]]), one)
        return float(clipped_surrogate(ratio, np.array([[advantage]]), **clip_range(values))[0, 0])

    at = -1.0
    frozen = (value(at + step, at) - value(at - step, at)) / (2 * step)
    shared = (value(at + step, at + step) - value(at - step, at - step)) / (2 * step)
    return {"value": value(at, at), "frozen": frozen, "shared": shared}


def kl_at(log_ratio: Any) -> dict[str, np.ndarray]:
    """Return k1, k2 and k3 at log-ratios d = ref_logp - logp."""
    d = np.atleast_1d(np.asarray(log_ratio, dtype=float))
    return {name: kl_estimate(-d, np.zeros_like(d), estimator=name) for name in ("k1", "k2", "k3")}


@dataclass(frozen=True)
class Distributions:
    """Two distributions over the same events, their exact divergences, and the estimators event by event."""

    current: np.ndarray
    reference: np.ndarray
    exact: float  # KL(current, reference)
    reverse: float
    estimates: Mapping[str, np.ndarray]
    expected: Mapping[str, float]  # under the current policy


def distributions(current: Sequence[float], reference: Sequence[float]) -> Distributions:
    """Return the comparison of two distributions given as weights; they are normalised here.

    An event that the current policy never produces takes no part in an expectation.
    """
    size = min(len(current), len(reference))
    p, q = _normalised(current[:size]), _normalised(reference[:size])
    with np.errstate(divide="ignore", invalid="ignore"):
        d = np.log(q) - np.log(p)
    seen = p > 0
    d = np.where(seen, d, 0.0)
    estimates = {name: np.where(seen, values, 0.0) for name, values in kl_at(d).items()}
    expected = {name: float(weighted_sum(values, p)) for name, values in estimates.items()}
    return Distributions(p, q, float(categorical_kl(p, q)), float(categorical_kl(q, p)), estimates, expected)


def _normalised(weights: Sequence[float]) -> np.ndarray:
    w = np.asarray(weights, dtype=float)
    return w / w.sum() if w.sum() > 0 else np.full(len(w), 1.0 / len(w))


def rule_weights(group: Group, mode: str, *, constant: float) -> np.ndarray:
    """Return the token weights (B, T) of one rule."""
    batch = GroupBatch.from_groups([group], AdvantageSpec())
    return token_weights(batch.mask, mode=mode, constant=constant)


def token_terms(lens: Lens) -> np.ndarray:
    """Return what is being averaged: each token's own loss, (B, T)."""
    return lens.terms.per_token


@dataclass(frozen=True)
class Parts:
    """A token mean, computed over parts of the batch: each part's own mean, their mean, and the true one."""

    members: tuple[tuple[int, ...], ...]
    tokens: tuple[int, ...]
    local: tuple[float, ...]
    mean_of_means: float
    pooled: float


def split(lens: Lens, parts: int) -> Parts:
    """Return the token mean over `parts` micro-batches of whole completions, against the token mean of the batch."""
    count = min(parts, lens.group.size)
    members = tuple(tuple(int(i) for i in part) for part in np.array_split(np.arange(lens.group.size), count))
    sums, counts, local = [], [], []
    for part in members:
        rows = np.array(part)
        mask, terms = lens.batch.mask[rows], lens.terms.per_token[rows]
        local.append(float(weighted_sum(terms, token_weights(mask, mode="token_mean"))))
        sums.append(float(weighted_sum(terms, token_weights(mask, mode="token_sum"))))
        counts.append(float(mask.sum()))
    equal = np.full(len(local), 1.0)
    return Parts(
        members,
        tuple(int(c) for c in counts),
        tuple(local),
        float(pooled_mean(np.array(local), equal)),
        float(pooled_mean(np.array(sums), np.array(counts))),
    )
