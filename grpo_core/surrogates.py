"""Ratio and advantage to the per-token objective (to be maximised), and where its gradient is zero."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from grpo_core._arrays import Array, as_data, namespace, number


def clipped_surrogate(
    ratio: Array,
    advantages: Array,
    *,
    epsilon_low: float = 0.2,
    epsilon_high: float = 0.2,
    delta: float | None = None,
) -> Array:
    r"""Return PPO's clipped objective per token: min(r A, clip(r, 1 - epsilon_low, 1 + epsilon_high) A).

    `ratio` and `advantages` broadcast, (B, T) or (B, 1). With `delta`, the unclipped branch uses min(r, delta), which
    bounds the objective of a negative advantage (TRL's two-sided clip; PPO's dual clip with c = delta).
    Raises ValueError for epsilon_low outside [0, 1], a negative epsilon_high or a delta that is not positive.
    Source: PPO arXiv:1707.06347 eq. 7; asymmetric: DAPO arXiv:2503.14476 eq. 10; delta: INTELLECT-2 arXiv:2505.07291
    sec. 3.4.

    >>> import numpy as np
    >>> clipped_surrogate(np.array([0.5, 1.5]), np.array([1.0, 1.0])).tolist()
    [0.5, 1.2]
    >>> clipped_surrogate(np.array([0.5, 1.5]), np.array([-1.0, -1.0])).tolist()
    [-0.8, -1.5]
    """
    low, high, delta = _clip_range(epsilon_low, epsilon_high, delta)
    ratio, advantages = as_data(ratio, "ratio"), as_data(advantages, "advantages")
    xp = namespace(ratio, advantages)
    unclipped = ratio if delta is None else xp.clip(ratio, None, delta)
    return xp.minimum(unclipped * advantages, xp.clip(ratio, low, high) * advantages)


def clip_saturated(
    ratio: Array,
    advantages: Array,
    *,
    epsilon_low: float = 0.2,
    epsilon_high: float = 0.2,
    delta: float | None = None,
) -> Array:
    """Return where clipping has made the gradient of `clipped_surrogate` zero, as booleans of the broadcast shape.

    A > 0: r above 1 + epsilon_high (or above delta, if that is lower). A < 0: r below 1 - epsilon_low, or above both
    delta and 1 + epsilon_high. The boundary itself is a kink and counts as open; a zero advantage has nothing to clip.
    """
    low, high, delta = _clip_range(epsilon_low, epsilon_high, delta)
    ratio, advantages = as_data(ratio, "ratio"), as_data(advantages, "advantages")
    ceiling = high if delta is None else min(high, delta)
    up = (advantages > 0) & (ratio > ceiling)
    down = (advantages < 0) & (ratio < low)
    if delta is not None:
        down = down | ((advantages < 0) & (ratio > max(high, delta)))
    return up | down


def clipped_slope(
    ratio: Array,
    advantages: Array,
    *,
    epsilon_low: float = 0.2,
    epsilon_high: float = 0.2,
    delta: float | None = None,
) -> Array:
    """Return d(clipped_surrogate)/d(ratio): the advantage where the term is open, 0 where it is saturated.

    At ratio 1 this is the advantage itself, although the ratio's value says nothing: d(ratio)/d(logp) = ratio = 1. Had
    the old policy's log-probabilities shared the graph, the two derivatives would cancel and the slope would be 0.
    """
    ratio, advantages = as_data(ratio, "ratio"), as_data(advantages, "advantages")
    saturated = clip_saturated(ratio, advantages, epsilon_low=epsilon_low, epsilon_high=epsilon_high, delta=delta)
    xp = namespace(ratio, advantages)
    return xp.where(saturated, xp.zeros_like(ratio * advantages), xp.ones_like(ratio) * advantages)


def _clip_range(epsilon_low: float, epsilon_high: float, delta: float | None) -> tuple[float, float, float | None]:
    low = 1.0 - number(epsilon_low, "epsilon_low", low=0.0, high=1.0)
    high = 1.0 + number(epsilon_high, "epsilon_high", low=0.0)
    return low, high, None if delta is None else number(delta, "delta", low=0.0, open_low=True)


@dataclass(frozen=True)
class SurrogateInputs:
    """What a surrogate may use, masked positions already neutral: arrays (B, T), or (B, 1) where said.

    `logp` and `old_logp` (B, T); `log_ratio` (B, T), per token; `ratio` (B, T) or (B, 1), at the objective's level;
    `advantages` (B, T) or (B, 1); `mask` boolean (B, T).
    """

    logp: Array
    old_logp: Array
    log_ratio: Array
    ratio: Array
    advantages: Array
    mask: Array


@dataclass(frozen=True)
class Surrogate:
    """A per-token objective as data: what it is called, the hyperparameters it reads, its value, its flat region."""

    title: str
    parameters: Mapping[str, Any]  # name -> default
    objective: Callable[..., Array]  # (SurrogateInputs, **parameters) -> (B, T) or (B, 1)
    saturated: Callable[..., Array]  # the same arguments -> bool


SURROGATES: Mapping[str, Surrogate] = {
    "clip": Surrogate(
        title="PPO clip",
        parameters={"epsilon_low": 0.2, "epsilon_high": 0.2, "delta": None},
        objective=lambda x, **p: clipped_surrogate(x.ratio, x.advantages, **p),
        saturated=lambda x, **p: clip_saturated(x.ratio, x.advantages, **p),
    ),
    "policy_gradient": Surrogate(
        title="score function, no ratio",
        parameters={},
        objective=lambda x: x.logp * x.advantages,
        saturated=lambda x: namespace(x.mask).zeros_like(x.mask),
    ),
    "unclipped": Surrogate(
        title="importance ratio, no clip",
        parameters={},
        objective=lambda x: x.ratio * x.advantages,
        saturated=lambda x: namespace(x.mask).zeros_like(x.mask),
    ),
}
