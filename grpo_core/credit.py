"""Which token gets how much of the reward: TD errors, n-step estimates, values measured by continuing a prefix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from grpo_core._arrays import Array, as_data, namespace, number, whole_number
from grpo_core._moments import as_rewards
from grpo_core.messages import InputError


def td_errors(rewards: Array, values: Array, *, gamma: float = 1.0) -> Array:
    r"""Return the one-step errors delta_t = r_t + gamma V_{t+1} - V_t, shape (T,).

    `rewards` (T,), `values` (T + 1,): the last value is 0 after a terminal token and a bootstrap value after a
    truncated one. Raises ValueError for other shapes and for gamma outside [0, 1].
    Source: GAE arXiv:1506.02438 sec. 3.

    >>> td_errors([0, 0, 1], [0.2, 0.4, 0.7, 0.0]).round(3).tolist()
    [0.2, 0.3, 0.3]
    """
    gamma = number(gamma, "gamma", low=0.0, high=1.0)
    rewards, values = _trajectory(rewards, values)
    return rewards + gamma * values[1:] - values[:-1]


def n_step_advantages(rewards: Array, values: Array, *, t: int = 0, gamma: float = 1.0) -> Array:
    r"""Return every n-step estimate for the token at `t`, n = 1 .. T - t, as an array (T - t,).

    A_t^(n) = sum_{l < n} gamma^l r_{t+l} + gamma^n V_{t+n} - V_t = sum_{l < n} gamma^l delta_{t+l}: more measured
    rewards, less of the critic's opinion, as n grows. Shapes and errors as in `td_errors`; t must be in 0..T-1.
    Source: GAE arXiv:1506.02438 sec. 3.

    >>> n_step_advantages([0, 0, 1], [0.2, 0.4, 0.7, 0.0]).round(3).tolist()
    [0.2, 0.5, 0.8]
    """
    errors = td_errors(rewards, values, gamma=gamma)
    if whole_number(t, "t", low=0) >= errors.shape[0]:
        raise InputError(
            "t must be between 0 and {last} for {tokens} tokens, got {t!r}",
            last=errors.shape[0] - 1,
            tokens=errors.shape[0],
            t=t,
        )
    xp = namespace(errors)
    rest = errors[t:]
    return xp.cumulative_sum(rest * _powers(rest, float(gamma)))


def n_step_weights(steps: int, *, lam: float) -> np.ndarray:
    r"""Return the weight that GAE gives each n-step estimate, n = 1 .. steps, when the trajectory ends after `steps`.

    (1 - lam) lam^(n-1) for n < steps, and lam^(steps-1) for the last one, which takes all that an endless trajectory
    would have given to longer estimates: the weights sum to 1. Without that tail they do not.
    Raises ValueError for steps below 1 and lam outside [0, 1].

    >>> n_step_weights(3, lam=0.9).round(3).tolist()
    [0.1, 0.09, 0.81]
    """
    lam, steps = number(lam, "lam", low=0.0, high=1.0), whole_number(steps, "steps", low=1)
    decay = lam ** np.arange(steps)
    return np.append((1.0 - lam) * decay[:-1], decay[-1])


def returns_to_go(rewards: Array, *, gamma: float = 1.0) -> Array:
    r"""Return G_t = sum_{k >= t} gamma^(k-t) r_k over the last axis; `rewards` (..., T), and so is the result.

    An action cannot change what was paid before it, so that earlier rewards only add noise to its gradient.
    """
    gamma = number(gamma, "gamma", low=0.0, high=1.0)
    rewards = as_data(rewards, "rewards")
    if rewards.ndim < 1:
        raise InputError("rewards must have shape (..., T), got a single number")
    if rewards.shape[-1] == 0:
        return rewards
    xp = namespace(rewards)
    total = xp.zeros_like(rewards[..., 0])
    backwards = []
    for t in range(rewards.shape[-1] - 1, -1, -1):
        total = rewards[..., t] + gamma * total
        backwards.append(total)
    return xp.stack(backwards[::-1], axis=-1)


def _trajectory(rewards: Array, values: Array) -> tuple[Array, Array]:
    rewards, values = as_data(rewards, "rewards"), as_data(values, "values")
    if rewards.ndim != 1 or values.ndim != 1 or values.shape[0] != rewards.shape[0] + 1:
        raise InputError(
            "values must have one entry more than rewards, both one-dimensional; got shapes {shape} and {other}",
            shape=tuple(rewards.shape),
            other=tuple(values.shape),
        )
    return rewards, values


def _powers(like: Array, base: float) -> Array:
    """Return base^0, base^1, ... as an array of the shape and kind of `like`."""
    xp = namespace(like)
    ones = xp.ones_like(like)
    return xp.concat([ones[:1], xp.cumulative_prod(ones[1:] * base)]) if like.shape[0] > 1 else ones


def continuation_values(continuation_rewards: Sequence[Any]) -> np.ndarray:
    """Return the value of each prefix as the mean reward of the completions sampled from it, shape (prefixes,).

    `continuation_rewards[t]` lists the rewards of the continuations started at prefix t, None for one that could not be
    scored (it takes no part). The estimate is unbiased and its error shrinks like 1 / sqrt(continuations).
    Raises ValueError for a prefix without a scored continuation.
    Source: VinePPO arXiv:2410.01679 sec. 4.

    >>> continuation_values([[0, 1, 0, 1], [1, 1, None, 1]]).tolist()
    [0.5, 1.0]
    """
    if isinstance(continuation_rewards, str) or len(continuation_rewards) == 0:
        raise InputError("continuation_rewards must hold a list of rewards for each prefix, got none")
    means = []
    for i, row in enumerate(continuation_rewards):
        scores = as_rewards(row)
        if scores.ndim != 1 or np.all(np.isnan(scores)):
            raise InputError(
                "continuation_rewards[{i}] must hold at least one scored reward, got {row!r:.80}", i=i, row=row
            )
        means.append(float(np.nanmean(scores)))
    return np.asarray(means)


def continuation_advantages(continuation_rewards: Sequence[Any], reward: float) -> np.ndarray:
    r"""Return the advantage of each step of one completion from continuations: what the step did to the success rate.

    A_t = V(s_{t+1}) - V(s_t), and reward - V(s_{T-1}) for the last step. `continuation_rewards[t]` belongs to the
    prefix *before* step t (a step may be a token or a line of reasoning); `reward` is the completion's own. Shape (T,).
    The advantages sum to reward - V(s_0).
    Source: VinePPO arXiv:2410.01679 sec. 4.

    >>> continuation_advantages([[0, 1], [1, 1], [0, 0]], 0.0).tolist()
    [0.5, -1.0, 0.0]
    """
    values = np.append(continuation_values(continuation_rewards), 0.0)
    paid = np.zeros(len(values) - 1)
    paid[-1] = number(reward, "reward")
    return td_errors(paid, values)


@dataclass(frozen=True)
class RolloutBill:
    """What measuring values by continuations costs: extra completions and tokens, beside the group's own tokens.

    `ratio` is (group + extra tokens) / group tokens: how many times more is generated than by outcome GRPO.
    """

    continuations: int
    tokens: int
    group_tokens: int

    @property
    def ratio(self) -> float:
        """Generated tokens, relative to the group alone."""
        return (self.group_tokens + self.tokens) / self.group_tokens if self.group_tokens else 1.0


def continuation_bill(
    lengths: Sequence[int], *, continuations: int, starts: Sequence[Sequence[int]] | None = None
) -> RolloutBill:
    """Return the cost of continuation values for completions of the given `lengths`, in tokens.

    From each start, `continuations` completions are sampled; each is taken to be as long as what remained of the
    completion it branches from. `starts[i]` lists completion i's branching positions (tokens already written); the
    default is every token, where the tokens grow with the square of the length: continuations * L (L + 1) / 2.
    Raises ValueError for negative lengths, fewer than one continuation, and starts outside the completion.

    >>> continuation_bill([100], continuations=4)
    RolloutBill(continuations=400, tokens=20200, group_tokens=100)
    """
    sizes = [whole_number(length, "lengths", low=0) for length in lengths]
    each = whole_number(continuations, "continuations", low=1)
    rows: Sequence[Sequence[int]] = [range(size) for size in sizes] if starts is None else starts
    if len(rows) != len(sizes):
        raise InputError(
            "starts must have one list for each of the {count} completions, got {got}", count=len(sizes), got=len(rows)
        )
    for i, (row, size) in enumerate(zip(rows, sizes, strict=True)):
        if any(not 0 <= start < size for start in row):
            raise InputError("starts[{i}] must lie in 0..{last}, got {row!r:.80}", i=i, last=size - 1, row=list(row))
    remaining = sum(size - start for row, size in zip(rows, sizes, strict=True) for start in row)
    return RolloutBill(each * sum(len(row) for row in rows), each * remaining, sum(sizes))
