"""Refreshing the reference against lowering beta: exact paths of a softmax policy over a few actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grpo_core._arrays import Array, as_data, check_same_shape, namespace, number, whole_number
from grpo_core.kl import categorical_kl, check_distribution
from grpo_core.kl_gradients import centred
from grpo_core.messages import InputError

MAX_STEPS = 10_000


@dataclass(frozen=True)
class PenalisedPaths:
    """Several runs from one start, step by step: `policy` and the `reference` in force then, (runs, steps + 1, K).

    At a step that refreshes, the reference is already the new one. `rewards` (K,).
    """

    policy: Array
    reference: Array
    rewards: Array

    @property
    def reward(self) -> Array:
        """The expected reward, (runs, steps + 1)."""
        return namespace(self.policy, self.rewards).sum(self.policy * self.rewards, axis=-1)

    @property
    def from_start(self) -> Array:
        """KL(policy, first reference) in nats, (runs, steps + 1)."""
        return categorical_kl(self.policy, self.policy[:, :1, :] + 0.0 * self.policy)

    @property
    def penalty(self) -> Array:
        """KL(policy, reference in force) in nats, (runs, steps + 1): what beta multiplies, 0 at a refresh."""
        return categorical_kl(self.policy, self.reference)


def penalised_paths(
    start: Array, rewards: Array, *, runs: Sequence[tuple[float, int | None]], learning_rate: float, steps: int
) -> PenalisedPaths:
    r"""Return the paths of exact gradient ascent on E_p[r] - beta KL(p, reference), one for each of `runs`.

    `start` (K,) positive probabilities: every run's first policy and first reference; `rewards` (K,). A run is
    (beta, N): its reference becomes its policy after every N steps, never if N is None. The step is in the logits,
    learning_rate p_j (s_j - E_p[s]) with s = r - beta log(p / reference).

    Without a refresh the path ends at `kl_optimal_policy`, start exp(r / beta) / Z. If each of k rounds converges, k of
    them end where one run with beta / k does; N = 1 leaves no penalty at all, since its gradient is 0 at p = reference.
    Raises ValueError for a start with a zero, shapes that differ, beta below 0, N below 1 or more than 10000 steps.
    Source: the refresh is DeepSeekMath arXiv:2402.03300 algorithm 1 and DeepSeek-R1 arXiv:2501.12948 (every 400 steps).

    >>> paths = penalised_paths([0.5, 0.5], [1.0, 0.0], runs=[(1.0, None)], learning_rate=1.0, steps=200)
    >>> paths.policy[0, -1].round(4).tolist()
    [0.7311, 0.2689]
    """
    policy, rewards = check_distribution(start, "start"), as_data(rewards, "rewards")
    check_same_shape(policy, rewards, "start", "rewards")
    xp = namespace(policy, rewards)
    if policy.ndim != 1 or not bool(xp.all(policy > 0)):
        raise InputError("start must be one distribution (K,) that gives every action a positive probability")
    rate = number(learning_rate, "learning_rate", low=0.0, open_low=True)
    count = whole_number(steps, "steps", low=0)
    if count > MAX_STEPS:
        raise InputError("steps must be at most {max_steps}, got {steps!r}", max_steps=MAX_STEPS, steps=steps)
    betas = [number(beta, "beta", low=0.0) for beta, _ in runs]
    every = [count + 1 if n is None else whole_number(n, "refresh_every", low=1) for _, n in runs]
    return _climb(policy, rewards, xp.stack([xp.full_like(policy, beta) for beta in betas]), every, rate, count)


def _climb(start: Array, rewards: Array, betas: Array, every: Sequence[int], rate: float, steps: int) -> PenalisedPaths:
    """Return the paths; `betas` (runs, K) holds each run's beta in every column, so that all runs step together."""
    xp = namespace(start)
    logp = xp.log(start) + 0.0 * betas
    goal, policies, goals = logp, [xp.exp(logp)], [logp]
    for step in range(1, steps + 1):
        logits = logp + rate * centred(policies[-1], rewards - betas * (logp - goal))
        logits = logits - xp.max(logits, axis=-1, keepdims=True)
        logp = logits - xp.log(xp.sum(xp.exp(logits), axis=-1, keepdims=True))
        if any(step % n == 0 for n in every):
            goal = xp.stack([logp[i, :] if step % n == 0 else goal[i, :] for i, n in enumerate(every)])
        policies.append(xp.exp(logp))
        goals.append(goal)
    return PenalisedPaths(xp.stack(policies, axis=1), xp.exp(xp.stack(goals, axis=1)), rewards)
