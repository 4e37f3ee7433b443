"""Rewards to advantages: which completions of a group are pushed up, which down, and how hard."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import array_api_compat

from grpo_core._arrays import Array, as_data, namespace, number, one_of, whole_number
from grpo_core._moments import Moments, check_ddof, filled, moments, reward_array, std_of
from grpo_core.baselines import (
    Whitening,
    best_of_group_advantages,
    length_weighted_advantages,
    nonzero_scaled_advantages,
    whiten,
)
from grpo_core.credit import td_errors
from grpo_core.messages import InputError

SCALES = ("group", "batch", "none")
REWARD_AGGREGATIONS = ("sum_then_normalize", "normalize_then_sum")
KINDS = ("mixed", "all-right", "all-wrong", "unscored")


@dataclass(frozen=True)
class GroupAdvantages:
    """Advantages with the statistics they came from.

    `advantages` (..., G); `mean`, `std` and `valid_count` (...), over each group's scored completions; `divisor` (...),
    what the centred rewards were divided by (1 where nothing was). `mean` is nan for a group without a scored
    completion; `std` is 0 where fewer than two are scored or all scores are equal.
    """

    advantages: Array
    mean: Array
    std: Array
    valid_count: Array
    divisor: Array


@dataclass(frozen=True, kw_only=True)
class AdvantageSpec:
    """How rewards become advantages: the name of an estimator (see ESTIMATORS) and its hyperparameters.

    `ddof`, `eps` and `scale` say what divides in the estimator "group" (and "best_of_group", which ignores "batch");
    `whitening` is applied to the result. `reward_aggregation` is for several reward functions: "sum_then_normalize" or
    "normalize_then_sum" (GDPO).
    """

    estimator: str = "group"
    ddof: int = 1
    eps: float = 1e-4
    scale: str = "group"
    whitening: Whitening | None = None
    reward_aggregation: str = "sum_then_normalize"

    def __post_init__(self) -> None:
        one_of(self.estimator, "estimator", tuple(ESTIMATORS))
        check_ddof(self.ddof)
        number(self.eps, "eps", low=0.0)
        one_of(self.scale, "scale", SCALES)
        one_of(self.reward_aggregation, "reward_aggregation", REWARD_AGGREGATIONS)


def group_advantages(rewards: Array, *, ddof: int = 1, eps: float = 1e-4, scale: str = "group") -> GroupAdvantages:
    r"""Return group-relative advantages A_i = (r_i - mean) / (std + eps).

    `rewards` is (..., G), one group in each row, nan for a completion that could not be scored (or a list with None).
    `mean` and `std` are over the row's scored completions. `scale` says which std divides: the row's ("group"), that of
    all scored rewards of the array ("batch", the mean stays the row's, as TRL does it), or no division ("none",
    Dr. GRPO). `ddof` 0 is the population std, 1 the sample std; `eps` is added to the std, after the root.

    A group whose scores are all equal gets exactly 0. An unscored completion gets 0 and takes no part in mean and std.

    Raises ValueError for infinite or empty rewards, ddof outside {0, 1}, a negative eps or an unknown scale.
    Source: GRPO arXiv:2402.03300 sec. 4.1.2 (no eps, std unspecified); TRL 1.16 ddof 1, eps 1e-4; verl 0.9.1 ddof 1,
    eps 1e-6; OpenRLHF 0.11.2 ddof 1, eps 1e-9.

    >>> group_advantages([1, 0, 0, 0], ddof=1, eps=0.0).advantages.tolist()
    [1.5, -0.5, -0.5, -0.5]
    """
    ddof, eps, scale = check_ddof(ddof), number(eps, "eps", low=0.0), one_of(scale, "scale", SCALES)
    rewards = reward_array(rewards)
    xp = namespace(rewards)
    scores = moments(rewards)
    std = std_of(scores, ddof)
    if scale == "none":
        divisor = xp.ones_like(std)
    elif scale == "group":
        divisor = std + eps
    else:
        divisor = xp.zeros_like(std) + std_of(moments(rewards, axis=None), ddof, axis=None) + eps
    return _divided(scores, std, divisor)


def _divided(scores: Moments, std: Array, divisor: Array) -> GroupAdvantages:
    """Return centred / divisor, and 0 where the group carries no signal (so that 0 / 0 never happens)."""
    xp = namespace(scores.centred)
    safe = xp.where(divisor > 0, divisor, xp.ones_like(divisor))
    return GroupAdvantages(
        advantages=scores.centred / safe,
        mean=xp.squeeze(scores.mean, axis=-1),
        std=xp.squeeze(std, axis=-1),
        valid_count=xp.astype(xp.squeeze(scores.count, axis=-1), xp.int64),
        divisor=xp.squeeze(safe, axis=-1),
    )


def leave_one_out_advantages(rewards: Array) -> Array:
    r"""Return RLOO's advantages: each reward minus the mean of the *other* scored rewards of its group.

    A_i = r_i - sum_{j != i} r_j / (G - 1) = G / (G - 1) (r_i - mean). `rewards` (..., G), nan for unscored; the result
    has its shape, with 0 for an unscored completion and for one without a scored sibling.

    Source: RLOO arXiv:2402.14740 (after Kool et al. 2019); TRL 1.16 RLOOTrainer.

    >>> leave_one_out_advantages([1, 0, 1, 0]).round(4).tolist()
    [0.6667, -0.6667, 0.6667, -0.6667]
    """
    scores = moments(reward_array(rewards))
    xp = namespace(scores.centred)
    return scores.centred * (scores.count / xp.clip(scores.count - 1.0, 1.0, None))


@dataclass(frozen=True)
class _Case:
    """What an estimator may use besides the rewards: completion lengths (..., G), the greedy one's reward (...)."""

    rewards: Array
    spec: AdvantageSpec
    lengths: Array | None = None
    greedy_rewards: Array | None = None

    def needed(self, name: str) -> Array:
        value = getattr(self, name)
        if value is None:
            raise InputError(
                "{name} must be given for the estimator {estimator!r} with {spec}",
                name=name,
                estimator=self.spec.estimator,
                spec=self.spec,
            )
        return as_data(value, name)


def _result(case: _Case, advantages: Array) -> GroupAdvantages:
    """Return `advantages` with the group's statistics; 0 for unscored completions, nothing was divided."""
    scores = moments(case.rewards)
    std = std_of(scores, case.spec.ddof)
    plain = _divided(scores, std, namespace(std).ones_like(std))
    xp = namespace(advantages)
    return replace(plain, advantages=xp.where(scores.scored, advantages, xp.zeros_like(advantages)))


def _group(case: _Case) -> GroupAdvantages:
    spec = case.spec
    return group_advantages(case.rewards, ddof=spec.ddof, eps=spec.eps, scale=spec.scale)


def _leave_one_out(case: _Case) -> GroupAdvantages:
    return _result(case, leave_one_out_advantages(case.rewards))


def _reward(case: _Case) -> GroupAdvantages:
    return _result(case, filled(case.rewards))


def _batch_mean(case: _Case) -> GroupAdvantages:
    return _result(case, moments(case.rewards, axis=None).centred)


def _length_weighted(case: _Case) -> GroupAdvantages:
    return _result(case, length_weighted_advantages(case.rewards, case.needed("lengths")))


def _greedy(case: _Case) -> GroupAdvantages:
    return _result(case, filled(case.rewards) - case.needed("greedy_rewards")[..., None])


def _nonzero_scaled(case: _Case) -> GroupAdvantages:
    return _result(case, nonzero_scaled_advantages(case.rewards))


def _best_of_group(case: _Case) -> GroupAdvantages:
    spec = case.spec
    return _result(case, best_of_group_advantages(case.rewards, ddof=spec.ddof, eps=spec.eps, scale=spec.scale))


ESTIMATORS: Mapping[str, Callable[[_Case], GroupAdvantages]] = {
    "group": _group,
    "leave_one_out": _leave_one_out,
    "reward": _reward,
    "batch_mean": _batch_mean,
    "length_weighted": _length_weighted,
    "greedy_baseline": _greedy,
    "nonzero_scaled": _nonzero_scaled,
    "best_of_group": _best_of_group,
}
"""Baselines by name; whitening and scale are options of AdvantageSpec."""


def compute_advantages(
    rewards: Array,
    spec: AdvantageSpec,
    *,
    lengths: Array | None = None,
    greedy_rewards: Array | None = None,
) -> GroupAdvantages:
    """Return the advantages that `spec` names, from rewards (..., G) with nan for unscored (or a list with None).

    `lengths` (..., G), in tokens, are needed by "length_weighted" and by whitening; `greedy_rewards` (...), the reward
    of each prompt's greedy completion, by "greedy_baseline" (ReMax).
    """
    case = _Case(reward_array(rewards), spec, lengths, greedy_rewards)
    result = ESTIMATORS[spec.estimator](case)
    if spec.whitening is None:
        return result
    scored = ~namespace(case.rewards).isnan(case.rewards)
    return replace(
        result, advantages=whiten(result.advantages, case.needed("lengths"), scored, whitening=spec.whitening)
    )


def sum_rewards(parts: Array, *, weights: Sequence[float] | None = None) -> Array:
    """Return the weighted sum over reward functions, (..., G), from `parts` (..., G, F) with nan for "could not score".

    A function that could not score a completion drops out of that completion's sum, which is not rescaled; a completion
    that none could score is nan. Source: TRL 1.16 GRPOTrainer.
    """
    parts = _parts(parts)
    xp = namespace(parts)
    total = xp.sum(filled(parts) * _part_weights(parts, weights), axis=-1)
    unscored = xp.all(xp.isnan(parts), axis=-1)
    return xp.where(unscored, xp.full_like(total, math.nan), total)


def multi_reward_advantages(
    parts: Array,
    spec: AdvantageSpec,
    *,
    weights: Sequence[float] | None = None,
    lengths: Array | None = None,
) -> GroupAdvantages:
    r"""Return advantages from several reward functions, parts (..., G, F), the way `spec.reward_aggregation` says.

    "sum_then_normalize": the weighted sum is one reward. "normalize_then_sum" (GDPO): each function's rewards become
    group advantages first (always divided by the group's std), their weighted sum is centred and divided once more over
    the whole batch (by std + eps as TRL does, or by `spec.whitening` over tokens as verl does).
    The statistics returned are those of the summed rewards.
    Source: GDPO arXiv:2601.05242; TRL 1.16 `multi_objective_aggregation`; verl 0.9.1 'gdpo'.
    """
    summed = sum_rewards(parts, weights=weights)
    if spec.reward_aggregation == "sum_then_normalize":
        return compute_advantages(summed, spec, lengths=lengths)
    parts = _parts(parts)
    xp = namespace(parts)
    scored = ~xp.isnan(summed)
    each = [group_advantages(parts[..., f], ddof=spec.ddof, eps=spec.eps).advantages for f in range(parts.shape[-1])]
    total = xp.sum(xp.stack(each, axis=-1) * _part_weights(parts, weights), axis=-1)
    total = xp.where(scored, total, xp.full_like(total, math.nan))
    statistics = group_advantages(summed, ddof=spec.ddof, eps=spec.eps, scale=spec.scale)  # whatever the estimator
    if spec.whitening is not None:
        if lengths is None:
            raise InputError("lengths must be given to whiten over tokens")
        return replace(statistics, advantages=whiten(filled(total), lengths, scored, whitening=spec.whitening))
    batch = moments(total, axis=None)
    divisor = std_of(batch, spec.ddof, axis=None) + spec.eps
    return replace(statistics, advantages=batch.centred / xp.where(divisor > 0, divisor, xp.ones_like(divisor)))


def _parts(parts: Array) -> Array:
    parts = as_data(parts, "parts")
    if parts.ndim < 2 or bool(namespace(parts).any(namespace(parts).isinf(parts))):
        raise InputError(
            "parts must be finite rewards of shape (..., G, functions), got shape {shape}", shape=tuple(parts.shape)
        )
    return parts


def _part_weights(parts: Array, weights: Sequence[float] | None) -> Array:
    xp = namespace(parts)
    functions = parts.shape[-1]
    values = [1.0] * functions if weights is None else [number(w, "weights") for w in weights]
    if len(values) != functions:
        raise InputError(
            "weights must have one number for each of the {functions} reward functions, got {weights!r}",
            functions=functions,
            weights=weights,
        )
    return xp.asarray(values, dtype=parts.dtype, device=array_api_compat.device(parts))


def group_kind(rewards: Any, *, right_at: float = 1.0) -> str:
    """Return what one group's rewards can teach: "mixed", "all-right", "all-wrong" or "unscored".

    "mixed": at least two scores differ, so that there is a signal. Otherwise every scored completion is the same: right
    if that score is at least `right_at`. "unscored": no completion could be scored.

    >>> [group_kind(r) for r in ([1, 0], [1, None], [0, 0], [None])]
    ['mixed', 'all-right', 'all-wrong', 'unscored']
    """
    scores = reward_array(rewards)
    if scores.ndim != 1:
        raise InputError("rewards must be one group of shape (G,), got {shape}", shape=tuple(scores.shape))
    values = [float(x) for x in scores if not math.isnan(float(x))]
    if not values:
        return "unscored"
    if max(values) != min(values):
        return "mixed"
    return "all-right" if values[0] >= number(right_at, "right_at") else "all-wrong"


def binary_advantages(success_rate: Array) -> tuple[Array, Array]:
    r"""Return the advantage of a success and of a failure when a share q of a large group succeeds.

    sqrt((1 - q) / q) and -sqrt(q / (1 - q)), with the population std and no eps: the minority is emphasised.
    `success_rate` is strictly between 0 and 1; the results have its shape.
    """
    q = as_data(success_rate, "success_rate")
    xp = namespace(q)
    if not bool(xp.all((q > 0) & (q < 1))):
        raise InputError(
            "success_rate must be strictly between 0 and 1, got {success_rate!r}", success_rate=success_rate
        )
    return xp.sqrt((1.0 - q) / q), -xp.sqrt(q / (1.0 - q))


def mixed_group_probability(p: Array, group_size: int) -> Array:
    r"""Return the probability that a group of `group_size` has both successes and failures: 1 - p^G - (1 - p)^G.

    `p` (any shape) is the probability that one completion is right, independently of the others given the prompt.
    Raises ValueError for p outside [0, 1] or a group size below 1.

    >>> float(mixed_group_probability(0.5, 4))
    0.875
    """
    size = whole_number(group_size, "group_size", low=1)
    p = as_data(p, "p")
    xp = namespace(p)
    if not bool(xp.all((p >= 0) & (p <= 1))):
        raise InputError("p must be a probability between 0 and 1, got {p!r:.80}", p=p)
    # clip: for size 1 the exact value is 0 and rounding may leave -1e-17
    return xp.clip(1.0 - p**size - (1.0 - p) ** size, 0.0, 1.0)


def kind_probabilities(p: Array, group_size: int, *, unscored: float = 0.0) -> dict[str, Array]:
    r"""Return the probability of each kind of group (see KINDS) when a share `unscored` of completions gets no score.

    With u unscored and p (any shape) the probability that a scored completion is right, each completion on its own:
    unscored u^G, all-right (u + (1 - u) p)^G - u^G, all-wrong (u + (1 - u) (1 - p))^G - u^G, mixed the rest.
    Raises ValueError for p or u outside [0, 1] or a group size below 1.

    >>> {kind: float(x) for kind, x in kind_probabilities(0.5, 2).items()}
    {'mixed': 0.5, 'all-right': 0.25, 'all-wrong': 0.25, 'unscored': 0.0}
    """
    size = whole_number(group_size, "group_size", low=1)
    u = number(unscored, "unscored", low=0.0, high=1.0)
    p = as_data(p, "p")
    xp = namespace(p)
    if not bool(xp.all((p >= 0) & (p <= 1))):
        raise InputError("p must be a probability between 0 and 1, got {p!r:.80}", p=p)
    none = xp.full_like(p, u**size)
    right, wrong = ((u + (1.0 - u) * share) ** size - none for share in (p, 1.0 - p))
    mixed = xp.clip(1.0 - right - wrong - none, 0.0, 1.0)
    return dict(zip(KINDS, (mixed, right, wrong, none), strict=True))


def gae(rewards: Array, values: Array, *, gamma: float, lam: float) -> Array:
    r"""Return generalised advantage estimates of one trajectory, shape (T,).

    delta_t = r_t + gamma V_{t+1} - V_t and A_t = delta_t + gamma lam A_{t+1}. `rewards` (T,), `values` (T + 1,): the
    last value is that of the state after the final token, 0 if it is terminal and a bootstrap value if the trajectory
    was truncated. Raises ValueError for other shapes and for gamma or lam outside [0, 1].
    Source: GAE arXiv:1506.02438 eq. 16.

    >>> gae([0, 0, 1], [0.2, 0.4, 0.7, 0.0], gamma=1.0, lam=0.9).round(3).tolist()
    [0.713, 0.57, 0.3]
    """
    gamma, lam = number(gamma, "gamma", low=0.0, high=1.0), number(lam, "lam", low=0.0, high=1.0)
    deltas = td_errors(rewards, values, gamma=gamma)
    result: list[Array] = []
    for t in reversed(range(deltas.shape[0])):
        delta = deltas[t : t + 1]
        result.append(delta + gamma * lam * result[-1] if result else delta)
    return namespace(deltas).concat(result[::-1]) if result else deltas
