"""Iterative GRPO as a sequence of moments: who is refreshed when, and what the reward model is trained on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grpo_core._arrays import number, whole_number
from grpo_core.messages import InputError

MAX_MOMENTS = 5000


@dataclass(frozen=True)
class Moment:
    """One moment of Algorithm 1 and the versions in force after it.

    `action`: "reference" (the reference becomes the current policy), "sample" (the old policy becomes the current one
    and writes completions), "update" (a gradient step on them) or "reward" (the reward model is trained further).
    `iteration`, `step`, `epoch`: the loops' counters from 1, 0 outside a loop. `current`, `old`, `reference`: how many
    gradient steps the policy had taken when each copy was made. `reward`: how often the reward model was retrained.
    """

    action: str
    iteration: int
    step: int
    epoch: int
    current: int
    old: int
    reference: int
    reward: int

    @property
    def behind_old(self) -> int:
        """Gradient steps between the policy that wrote the data and the one being trained."""
        return self.current - self.old

    @property
    def behind_reference(self) -> int:
        """Gradient steps since the reference was refreshed."""
        return self.current - self.reference


def iterative_schedule(*, iterations: int, steps: int, epochs: int, retrain: bool = True) -> list[Moment]:
    """Return all moments of iterative GRPO: I iterations of M steps with mu gradient steps on each batch.

    `retrain`: whether the reward model is trained further after each iteration. Raises ValueError for counts below 1
    and for more than 5000 moments. Source: DeepSeekMath arXiv:2402.03300 algorithm 1.

    >>> [m.action for m in iterative_schedule(iterations=1, steps=1, epochs=2)]
    ['reference', 'sample', 'update', 'update', 'reward']
    """
    rounds, batches = whole_number(iterations, "iterations", low=1), whole_number(steps, "steps", low=1)
    passes = whole_number(epochs, "epochs", low=1)
    if (total := rounds * (1 + batches * (1 + passes) + bool(retrain))) > MAX_MOMENTS:
        raise InputError(
            "iterations, steps and epochs give {total} moments; at most {max_moments} are listed",
            total=total,
            max_moments=MAX_MOMENTS,
        )
    moments: list[Moment] = []
    current = old = reference = reward = 0
    for i in range(1, rounds + 1):
        reference = current
        moments.append(Moment("reference", i, 0, 0, current, old, reference, reward))
        for m in range(1, batches + 1):
            old = current
            moments.append(Moment("sample", i, m, 0, current, old, reference, reward))
            for e in range(1, passes + 1):
                current += 1
                moments.append(Moment("update", i, m, e, current, old, reference, reward))
        if retrain:
            reward += 1
            moments.append(Moment("reward", i, 0, 0, current, old, reference, reward))
    return moments


def replay_shares(iteration: int, *, replay: float = 0.1) -> np.ndarray:
    """Return each iteration's share of the data that the reward model is trained on after `iteration`, (iteration,).

    The newest data make up 1 - replay, all earlier ones share `replay` alike; at first there is nothing to replay.
    Raises ValueError for an iteration below 1 and a replay outside [0, 1].
    Source: DeepSeekMath arXiv:2402.03300 sec. 4.1.4 (10 % historical data).

    >>> replay_shares(3).round(3).tolist()
    [0.05, 0.05, 0.9]
    """
    count, share = whole_number(iteration, "iteration", low=1), number(replay, "replay", low=0.0, high=1.0)
    if count == 1:
        return np.ones(1)
    return np.append(np.full(count - 1, share / (count - 1)), 1.0 - share)
