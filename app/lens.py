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
    masked_mean,
    mean_of_means_weights,
    token_weights,
    weighted_sum,
)
from grpo_core.kl_gradients import estimator_moments
from grpo_core.ratios import LOG_RATIO_CAP, ratio_from_log
from grpo_core.token_gradients import TokenGradients, gradients_of


@dataclass(frozen=True)
class Lens:
    """A group with everything the settings make of it. `no_reference`: beta was set, but the group has no reference.

    `whole`: completions and training tokens of the step whose loss the group is a part of; None: it is all of it.
    """

    group: Group
    values: Mapping[str, Any]
    spec: AdvantageSpec
    objective: Objective
    batch: GroupBatch
    scores: GroupAdvantages
    terms: LossTerms
    no_reference: bool
    whole: tuple[int, int] | None = None

    @property
    def advantages(self) -> np.ndarray:
        """The advantages (G,)."""
        return self.scores.advantages

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens that train, for each completion."""
        return self.group.lengths

    @property
    def trained(self) -> tuple[int, ...]:
        """Tokens that train under the objective, for each completion: none in a truncated one that is dropped."""
        return tuple(int(n) for n in np.asarray(self.terms.mask).sum(axis=1))

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
    summed = np.log(token_ratio) * lengths[:, None]  # the sum over a completion's tokens, which are all alike
    return lengths, ratio_from_log(summed, np.ones_like(summed, dtype=bool), level="trajectory")[:, 0]


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
    spread: Mapping[str, float]  # standard deviation of one token's estimate, under the current policy


def distributions(current: Sequence[float], reference: Sequence[float]) -> Distributions:
    """Return the comparison of two distributions given as weights; they are normalised here.

    An event that the current policy never produces takes no part in an expectation.
    """
    size = min(len(current), len(reference))
    p, q = _normalised(current[:size]), _normalised(reference[:size])
    moments = {name: estimator_moments(p, q, estimator=name) for name in ("k1", "k2", "k3")}
    return Distributions(
        p,
        q,
        float(categorical_kl(p, q)),
        float(categorical_kl(q, p)),
        {name: found.estimates for name, found in moments.items()},
        {name: float(found.mean) for name, found in moments.items()},
        {name: float(found.std) for name, found in moments.items()},
    )


def _normalised(weights: Sequence[float]) -> np.ndarray:
    w = np.asarray(weights, dtype=float)
    return w / w.sum() if w.sum() > 0 else np.full(len(w), 1.0 / len(w))


def rule_weights(lens: Lens, mode: str, *, constant: float) -> np.ndarray:
    """Return the token weights (B, T) of one rule."""
    return token_weights(lens.terms.mask, mode=mode, constant=constant)


def token_terms(lens: Lens) -> np.ndarray:
    """Return what is being averaged: each token's own loss, (B, T)."""
    return lens.terms.per_token


SPANS = ("part", "rank", "all")


@dataclass(frozen=True)
class Parts:
    """A token mean over the parts of a batch: micro-batches, which `ranks` devices share out, in order.

    For each micro-batch: the completions in it, its tokens, its own token mean. `weights` and `losses`: for each span
    over which tokens are counted ("part": the micro-batch, "rank": all of a rank's micro-batches, "all": the whole
    batch), what one token of each micro-batch weighs and what the loss comes to.
    """

    ranks: int
    members: tuple[tuple[int, ...], ...]
    tokens: tuple[int, ...]
    local: tuple[float, ...]
    weights: Mapping[str, tuple[float, ...]]
    losses: Mapping[str, float]

    @property
    def mean_of_means(self) -> float:
        """The mean of the micro-batches' own means."""
        return self.losses["part"]

    @property
    def pooled(self) -> float:
        """The token mean of the whole batch."""
        return self.losses["all"]

    @property
    def each(self) -> int:
        """Micro-batches of one rank."""
        return len(self.members) // self.ranks


def split(lens: Lens, parts: int, ranks: int = 1) -> Parts:
    """Return the token mean over `parts` micro-batches on each of `ranks` devices, against that of the whole batch.

    Completions stay whole and in order. There are never more parts than completions.
    """
    ranks = min(ranks, lens.group.size)
    each = min(parts, lens.group.size // ranks)
    members = tuple(tuple(map(int, rows)) for rows in np.array_split(np.arange(lens.group.size), ranks * each))
    part = [k for k, rows in enumerate(members) for _ in rows]
    mask, terms = np.asarray(lens.terms.mask), lens.terms.per_token
    weights = {
        "part": mean_of_means_weights(mask, part),
        "rank": mean_of_means_weights(mask, [k // each for k in part]),
        "all": token_weights(mask, mode="token_mean"),
    }
    rows = [np.array(own) for own in members]
    return Parts(
        ranks,
        members,
        tuple(int(mask[own].sum()) for own in rows),
        tuple(float(masked_mean(terms[own], mask[own])) for own in rows),
        {span: tuple(float(w[own].max()) for own in rows) for span, w in weights.items()},
        {span: float(weighted_sum(terms, w)) for span, w in weights.items()},
    )
