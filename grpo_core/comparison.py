"""Curves of several runs compared at equal cost: values between the points, means over a stretch, first arrival."""

from __future__ import annotations

import numpy as np

from grpo_core._arrays import Array, number
from grpo_core.messages import InputError


def interpolate(cost: Array, values: Array, at: Array) -> np.ndarray:
    """Return the values of a curve at the costs `at`, on straight lines between its points; nan outside of them.

    `cost` (N,): not falling; points whose value is nan are left out. No points give nan everywhere.
    Raises ValueError for lengths that differ and a cost that falls.

    >>> interpolate([0.0, 100.0, 300.0], [0.2, 0.4, 0.8], [50.0, 200.0, 301.0]).tolist()
    [0.30000000000000004, 0.6000000000000001, nan]
    """
    x, y = _curve(cost, values)
    there = ~np.isnan(y)
    at = np.asarray(at, dtype=float)
    if not there.any():
        return np.full(at.shape, np.nan)
    return np.interp(at, x[there], y[there], left=np.nan, right=np.nan)


def interval_mean(ends: Array, values: Array, low: float, high: float) -> float:
    r"""Return the mean of a curve over the costs low..high, each value counted by how much of the cost was its own.

    sum_i w_i v_i / sum_i w_i, with w_i the overlap of (c_{i-1}, c_i] and (low, high], c_0 = 0. So runs whose steps cost
    different amounts are averaged over the same spending. `ends` (N,): the cumulative cost c_i after each step;
    `values` (N,): that step's metric, nan left out. Returns nan where nothing lies in the stretch.
    Raises ValueError for lengths that differ, a cost that falls, and high below low.
    Source: a weighted mean; comparing at equal generation cost is the article's rule (002).

    >>> interval_mean([100.0, 300.0], [1.0, 0.0], 50.0, 150.0)
    0.5
    """
    x, y = _curve(ends, values)
    low = number(low, "low", low=0.0)
    high = number(high, "high", low=low)
    starts = np.concatenate([[0.0], x[:-1]])
    weights = np.clip(np.minimum(x, high) - np.maximum(starts, low), 0.0, None)
    weights = np.where(np.isnan(y), 0.0, weights)
    total = float(weights.sum())
    return float((weights * np.nan_to_num(y)).sum() / total) if total > 0 else float("nan")


def first_reach(cost: Array, values: Array, level: float) -> float:
    """Return the cost at which a curve first reaches a level, on straight lines between its points; inf if never.

    Points whose value is nan are left out.
    Raises ValueError for lengths that differ and a cost that falls.

    >>> first_reach([0.0, 100.0, 200.0], [0.2, 0.4, 0.8], 0.5)
    125.0
    """
    x, y = _curve(cost, values)
    x, y = x[~np.isnan(y)], y[~np.isnan(y)]
    above = np.flatnonzero(y >= number(level, "level"))
    if not above.size:
        return float("inf")
    i = int(above[0])
    if i == 0:
        return float(x[0])
    share = (level - y[i - 1]) / (y[i] - y[i - 1])
    return float(x[i - 1] + share * (x[i] - x[i - 1]))


def _curve(cost: Array, values: Array) -> tuple[np.ndarray, np.ndarray]:
    """Read a curve: None is nan."""
    x, y = (np.asarray(list(part), dtype=float) for part in (cost, values))
    if x.shape != y.shape:
        raise InputError(
            "a curve needs one value for each cost, got {got} values for {costs} costs", got=len(y), costs=len(x)
        )
    if np.isnan(x).any() or (np.diff(x) < 0).any():
        raise InputError("the cost of a curve must be known and may not fall")
    return x, y
