"""Rewards with missing scores, and the moments of what was scored."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import array_api_compat
import numpy as np

from grpo_core._arrays import Array, as_data, namespace
from grpo_core.messages import InputError


def as_rewards(values: Any, name: str = "rewards") -> np.ndarray:
    """Return rewards as float64, with nan where `values` has None: a completion that could not be scored.

    `values` is one group (a sequence of numbers and None) or several groups of one size (a sequence of those).
    Raises ValueError for an empty list and for a value that is not a finite number: a missing score is None, never a
    nan or a 0. The error calls the values `name`.

    >>> as_rewards([1, None, 0.5]).tolist()
    [1.0, nan, 0.5]
    """
    if isinstance(values, str | bytes) or not isinstance(values, Sequence | np.ndarray):
        raise InputError("{name} must be a list of numbers or None, got {values!r:.80}", name=name, values=values)
    if len(values) == 0:
        raise InputError("{name} must not be empty: give one number, or None, for each completion", name=name)
    if isinstance(values[0], Sequence | np.ndarray) and not isinstance(values[0], str | bytes):
        rows = [as_rewards(row, name) for row in values]
        if len({row.shape for row in rows}) > 1:
            raise InputError("groups must have one size, got sizes {sizes}", sizes=[len(row) for row in rows])
        return np.stack(rows)
    return np.array([_as_reward(value, name, i) for i, value in enumerate(values)], dtype=np.float64)


def _as_reward(value: Any, name: str, index: int) -> float:
    if value is None:
        return math.nan
    try:
        result = float(value) if isinstance(value, Real) else math.nan
    except OverflowError:  # an int beyond a float's range
        result = math.inf
    if not math.isfinite(result):
        raise InputError(
            "{name} must be a finite number, or None if it could not be scored; got {value!r:.80}",
            name=f"{name}[{index}]",
            value=value,
        )
    return result


def reward_array(rewards: Any) -> Array:
    """Return rewards (..., G) as a float array with nan for unscored; lists go through as_rewards."""
    if not array_api_compat.is_array_api_obj(rewards):
        return as_rewards(rewards)
    rewards = as_data(rewards, "rewards")
    xp = namespace(rewards)
    if rewards.ndim < 1 or rewards.shape[-1] < 1:
        raise InputError("rewards must have shape (..., G) with G at least 1, got {shape}", shape=tuple(rewards.shape))
    if bool(xp.any(xp.isinf(rewards))):
        raise InputError("rewards must be finite (nan marks a completion that could not be scored), got inf")
    return rewards


def check_ddof(ddof: Any) -> int:
    if isinstance(ddof, bool) or ddof not in (0, 1):
        raise InputError("ddof must be 0 (population std) or 1 (sample std), got {ddof!r}", ddof=ddof)
    return int(ddof)


@dataclass(frozen=True)
class Moments:
    """Moments of each group's scored completions; `centred` is exactly 0 in a group whose scores are equal."""

    scored: Array  # (..., G) bool
    count: Array  # (...)
    mean: Array  # (...), nan where nothing is scored
    centred: Array  # (..., G), 0 where unscored
    equal: Array  # (...) bool: fewer than two different scores


def moments(rewards: Array, axis: int | None = -1) -> Moments:
    xp = namespace(rewards)
    scored = ~xp.isnan(rewards)
    zero = xp.zeros_like(rewards)
    filled = xp.where(scored, rewards, zero)
    count = xp.sum(xp.astype(scored, rewards.dtype), axis=axis, keepdims=True)
    mean = xp.sum(filled, axis=axis, keepdims=True) / xp.clip(count, 1.0, None)
    infinity = xp.full_like(rewards, math.inf)
    largest = xp.max(xp.where(scored, rewards, -infinity), axis=axis, keepdims=True)
    smallest = xp.min(xp.where(scored, rewards, infinity), axis=axis, keepdims=True)
    equal = largest <= smallest
    # Decided by max == min: the mean of seven rewards of 0.1 is not 0.1, and a tiny std would blow the rest up.
    mean = xp.where(equal & (count > 0), largest, mean)
    centred = xp.where(scored & ~equal, filled - mean, zero)
    mean = xp.where(count > 0, mean, xp.full_like(mean, math.nan))
    return Moments(scored, count, mean, centred, equal)


def std_of(scores: Moments, ddof: int, axis: int | None = -1) -> Array:
    """Return the std of the scored values, 0 where all are equal, with the reduced axis kept."""
    xp = namespace(scores.centred)
    degrees = xp.clip(scores.count - ddof, 1.0, None)
    variance = xp.sum(scores.centred * scores.centred, axis=axis, keepdims=True) / degrees
    return xp.where(scores.equal, xp.zeros_like(variance), xp.sqrt(variance))


def filled(rewards: Array) -> Array:
    xp = namespace(rewards)
    return xp.where(xp.isnan(rewards), xp.zeros_like(rewards), rewards)
