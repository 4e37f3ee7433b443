"""Process supervision: rewards of reasoning steps to per-token advantages, for one group of ragged completions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from grpo_core._arrays import one_of
from grpo_core._moments import as_rewards
from grpo_core.advantages import group_advantages
from grpo_core.messages import InputError

STEP_BASELINES = ("all", "position")
STEP_SCALES = ("group", "none")


def normalised_steps(
    step_rewards: Sequence[Sequence[float]],
    *,
    baseline: str = "all",
    ddof: int = 0,
    eps: float = 0.0,
    scale: str = "group",
) -> list[np.ndarray]:
    r"""Return each step's reward as (r - mean) / (std + eps), one array (steps,) for each completion of one group.

    `baseline` "all": mean and std over all steps of the group (DeepSeekMath). "position": over the steps with the same
    number, the k-th step of every completion that has one; a k-th step that is alone, or equal to all others, gets 0.
    `scale` "none" leaves the division by the std out, as Dr. GRPO does for whole completions.
    Source: GRPO arXiv:2402.03300 sec. 4.1.3 ("all"); "position" is the step-level baseline of lecture notes.

    >>> [row.tolist() for row in normalised_steps([[1, 0], [0, 0]], baseline="position")]
    [[1.0, 0.0], [-1.0, 0.0]]
    """
    one_of(baseline, "baseline", STEP_BASELINES)
    one_of(scale, "scale", STEP_SCALES)
    pools: dict[int, list[tuple[int, int]]] = {}
    for i, row in enumerate(step_rewards):
        for k in range(len(row)):
            pools.setdefault(k if baseline == "position" else 0, []).append((i, k))
    result = [np.zeros(len(row)) for row in step_rewards]
    for places in pools.values():
        rewards = as_rewards([step_rewards[i][k] for i, k in places])
        found = group_advantages(rewards, ddof=ddof, eps=eps, scale=scale).advantages
        for (i, k), value in zip(places, found, strict=True):
            result[i][k] = value
    return result


def process_advantages(
    step_rewards: Sequence[Sequence[float]],
    step_ends: Sequence[Sequence[int]],
    lengths: Sequence[int],
    *,
    ddof: int = 0,
    eps: float = 0.0,
    baseline: str = "all",
    scale: str = "group",
) -> list[np.ndarray]:
    r"""Return per-token advantages under process supervision, one array (T_i,) for each completion of one group.

    Every step reward is normalised over all steps of the group (`baseline`, `scale`: see normalised_steps), then a
    token gets the sum of the normalised rewards of the steps that end at or after it:
    A_{i,t} = sum_{j : end_j >= t} (r_j - mean) / (std + eps).

    `step_rewards[i][j]` belongs to the step whose last token has the 0-based index `step_ends[i][j]`; `lengths[i]` is
    the number of tokens. If all step rewards are equal, every advantage is exactly 0.
    Raises ValueError for lists that do not match and ends that are not increasing or lie outside the completion.
    Source: GRPO arXiv:2402.03300 sec. 4.1.3.
    """
    _check_steps(step_rewards, step_ends, lengths)
    normalised = normalised_steps(step_rewards, baseline=baseline, ddof=ddof, eps=eps, scale=scale)
    result = []
    for own, ends, length in zip(normalised, step_ends, lengths, strict=True):
        later = np.asarray(ends, dtype=int)[None, :] >= np.arange(int(length))[:, None]  # (T_i, steps)
        result.append((later * own[None, :]).sum(axis=1))
    return result


def _check_steps(step_rewards: Any, step_ends: Any, lengths: Any) -> None:
    if not len(step_rewards) == len(step_ends) == len(lengths):
        raise InputError(
            "step_rewards, step_ends and lengths must have one entry for each completion, got "
            "{rewards}, {ends} and {count}",
            rewards=len(step_rewards),
            ends=len(step_ends),
            count=len(lengths),
        )
    for i, (rewards, ends, length) in enumerate(zip(step_rewards, step_ends, lengths, strict=True)):
        if len(rewards) != len(ends):
            raise InputError(
                "completion {i} has {rewards} step_rewards but {ends} step_ends",
                i=i,
                rewards=len(rewards),
                ends=len(ends),
            )
        increasing = all(a < b for a, b in itertools.pairwise(ends))
        if not increasing or any(not 0 <= end < length for end in ends):
            raise InputError(
                "step_ends[{i}] must increase and lie in 0..{last}, got {ends}", i=i, last=length - 1, ends=list(ends)
            )
