"""What a critic learns from one trajectory, and how well values are known that were measured by continuing a prefix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from grpo_core._arrays import Array, as_data, check_same_shape, namespace, stop_gradient
from grpo_core._moments import as_rewards
from grpo_core.advantages import gae
from grpo_core.credit import continuation_values


def lambda_returns(rewards: Array, values: Array, *, gamma: float, lam: float) -> Array:
    r"""Return the critic's targets A_t + V_t, A_t as in `gae`, shape (T,): constants for the value loss.

    With lam = 1 they are the measured returns, with lam = 0 one reward and the critic's own opinion of the rest.
    `rewards` (T,), `values` (T + 1,) as in `gae`. Source: PPO arXiv:1707.06347 sec. 5 with arXiv:1506.02438.

    >>> lambda_returns([0, 0, 1], [0.2, 0.4, 0.7, 0.0], gamma=1.0, lam=0.9).round(3).tolist()
    [0.913, 0.97, 1.0]
    """
    values = as_data(values, "values")
    return stop_gradient(gae(rewards, values, gamma=gamma, lam=lam) + values[:-1])


def value_loss(values: Array, targets: Array) -> Array:
    """Return the critic's loss, the mean of (V_t - target_t)^2 / 2 over tokens; both (T,), targets without gradient.

    >>> float(value_loss([0.0, 1.0], [1.0, 1.0]))
    0.25
    """
    values, targets = as_data(values, "values"), stop_gradient(as_data(targets, "targets"))
    check_same_shape(values, targets, "values", "targets")
    xp = namespace(values, targets)
    return 0.5 * xp.mean((values - targets) ** 2)


def continuation_errors(continuation_rewards: Sequence[Any]) -> np.ndarray:
    """Return the standard error of each value in `continuation_values`, sample std / sqrt(scored), (prefixes,).

    nan where only one continuation was scored: one measurement does not show how far it may be off.

    >>> continuation_errors([[0, 1, 0, 1], [1, 1, 1, 1]]).round(4).tolist()
    [0.2887, 0.0]
    """
    continuation_values(continuation_rewards)  # its checks and messages
    errors = []
    for row in continuation_rewards:
        scores = as_rewards(row)
        scores = scores[~np.isnan(scores)]
        errors.append(float(np.std(scores, ddof=1)) / len(scores) ** 0.5 if len(scores) > 1 else float("nan"))
    return np.asarray(errors)
